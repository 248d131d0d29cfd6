"""The page at /."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Strata</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto;padding:0 1rem}
pre{background:#8882;padding:1rem;overflow:auto}</style></head>
<body><h1>Strata</h1>
<p>This server speaks the OpenAI API under <code>/v1</code>, and Anthropic's messages.</p>
<pre>curl http://HOST:PORT/v1/chat/completions -H 'content-type: application/json' \\
  -d '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}'</pre>
<p><a href="/health">health</a> &middot; <a href="/v1/models">models</a> &middot;
<a href="/v1/status">status</a> &middot; <a href="/metrics">metrics</a></p>
<script>document.querySelector("pre").textContent =
document.querySelector("pre").textContent.replace("HOST:PORT", location.host)</script>
</body></html>
"""
