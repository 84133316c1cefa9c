"""What sharing donors is worth on real streams: requests over many planners, with the directory between them."""
