"""Operations become a program: their order and waits, addresses, words."""
