"""How well drafts are guessed, source by source, from recordings and live."""
