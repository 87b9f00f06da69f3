"""What is the same under every framework: keys, fingerprints, answers, problems, and the rules."""
