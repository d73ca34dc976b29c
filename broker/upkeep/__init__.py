"""Work on a broker's tables that no request asks for: writing them, and removing what nobody needs."""
