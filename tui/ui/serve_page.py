"""The page in which the app is shown: textual-serve's terminal (xterm.js), without anything from another host.

Invariant: all addresses are relative to the page, so that it works under any name and behind a proxy; the terminal has the
keys as soon as it is there.
"""

from __future__ import annotations

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>rackrate</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/css/xterm.css">
<style>
  @font-face { font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); font-weight: 100 700; }
  html, body { margin: 0; height: 100%; background: #101418; overflow: hidden; }
  #terminal { position: absolute; inset: 0; }
  #ended { display: none; position: absolute; left: 0; right: 0; bottom: 0; z-index: 9; padding: 10px 16px; box-sizing: border-box;
    font: 15px "Roboto Mono", monospace; color: #e6edf3; background: #1d242c; }
  body.-closed #ended { display: block; }
  #ended a { color: #7cc4ff; }
</style>
</head>
<body>
<div id="terminal" class="textual-terminal" data-font-size="@SIZE@"></div>
<div id="ended" role="status">This tab's app has ended. <a href="" id="again">Start it again</a> (Enter)</div>
<noscript>The app is drawn by JavaScript; `rackrate watch --plain` is its line mode.</noscript>
<script>
  const terminal = document.getElementById("terminal");
  const here = new URL("ws", location.href);
  here.protocol = here.protocol.replace("http", "ws");
  here.search = "";
  terminal.dataset.sessionWebsocketUrl = here.href;
  const focus = () => document.querySelector(".xterm-helper-textarea")?.focus();
  new MutationObserver(() => {
    if (document.body.classList.contains("-closed")) document.getElementById("again").focus(); else focus();
  }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  addEventListener("focus", focus);
  const begin = () => {  // the width of a cell is measured once: the font must be there
    const script = document.createElement("script");
    script.src = "static/js/textual.js";
    script.onload = () => window.onload(new Event("load"));
    document.head.append(script);
  };
  document.fonts.load("@SIZE@px 'Roboto Mono'").then(begin, begin);
</script>
</body>
</html>
"""

REFUSED = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>rackrate</title>
<p>This needs the address that <code>rackrate serve</code> printed, with its token.</p></html>
"""


def page(font_size: int) -> str:
    """The HTML with a size of letters in pixels."""
    return PAGE.replace("@SIZE@", str(font_size))
