"""The best configuration known for a problem, from one's own results and the shipped ones."""
