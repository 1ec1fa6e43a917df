"""What programs ask: tools, many turns of a session, grammars."""
