"""Several processes of one proxy: what they tell each other about clients."""
