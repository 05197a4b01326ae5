"""Who makes a call, and whether it may: authentication strategies and policies."""
