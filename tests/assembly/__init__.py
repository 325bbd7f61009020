"""Assemblers of the machine's two processors; the product writes such texts and reads none."""
