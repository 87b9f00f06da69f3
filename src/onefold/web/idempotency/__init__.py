"""The parts that all frameworks share: keys, fingerprints, responses, problems and policies."""
