"""What commands of many runs share: the bill, the question before them, and launching them."""
