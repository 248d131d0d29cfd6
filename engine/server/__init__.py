"""The HTTP server, in a process of its own without torch: `engine.server.app.serve`."""
