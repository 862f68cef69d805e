"""Do backends give the answers that brute force gives, and where they do not, why?"""
