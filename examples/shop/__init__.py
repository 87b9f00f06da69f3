"""A small shop: four ways in, and whatever comes twice has one effect."""
