"""A small shop that keeps changing, carried to a receiver that breaks and is repaired: everything real, nothing to set up."""
