"""Rule text to AST: grammar, tokens, layout, parser and printer."""
