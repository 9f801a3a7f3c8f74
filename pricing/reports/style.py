"""The style sheet of the HTML report: light and dark by the reader's preference, black on white on paper.

Invariant: it names no address: no font, picture or sheet is fetched. Series colours keep 3:1 against the page in both
modes and are told apart by lightness too; what nobody used is hatched, not coloured.
"""

CSS = """
:root{color-scheme:light dark;--page:#f4f5f7;--paper:#fff;--ink:#16202c;--soft:#586575;--rule:#dde2e8;--grid:#e8ecf0;
--accent:#1f5fa8;--warn:#9a5b00;--warn-bg:#fff6e5;--bad:#b3261e;
--s1:#1f5fa8;--s2:#d9822b;--s3:#2e8b7a;--s4:#8e4c9e;--s5:#c2405a;--s6:#7a8b1f;--s7:#4aa3d8;--s8:#8a6d4f;
--idle:#c3cad3;--idle-line:#8c97a5;--lost:#c2405a;--down:#6b7684;--billing:#b08a3c;--unused:#8f6bb3}
@media (prefers-color-scheme:dark){:root{--page:#0e1319;--paper:#161d26;--ink:#e6ebf1;--soft:#9aa7b6;--rule:#2a3542;
--grid:#222c37;--accent:#6fb1f0;--warn:#f0b959;--warn-bg:#2b2415;--bad:#ff8a80;
--s1:#5b9be0;--s2:#f0a250;--s3:#4fb9a4;--s4:#bd7fd0;--s5:#ee7590;--s6:#aebf4c;--s7:#8fd0f5;--s8:#c0a384;
--idle:#3a4653;--idle-line:#75828f;--lost:#ee7590;--down:#8d99a7;--billing:#d9b566;--unused:#b797d8}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 Inter,"Segoe UI",system-ui,-apple-system,"Helvetica Neue",
Arial,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:32px auto;padding:44px 52px;background:var(--paper);border:1px solid var(--rule);border-radius:10px}
header{display:flex;justify-content:space-between;align-items:flex-end;gap:24px;border-bottom:2px solid var(--ink);
padding-bottom:16px;flex-wrap:wrap}
h1{font-size:27px;line-height:1.2;margin:0;letter-spacing:-.015em}
header p{margin:4px 0 0;color:var(--soft)}
.brand{font-weight:650;letter-spacing:.14em;text-transform:uppercase;font-size:12px;color:var(--accent);margin:0 0 6px}
.facts{text-align:right;font-size:13px}
h2{font-size:17px;margin:0 0 2px;letter-spacing:-.005em}
section{margin-top:38px}
.lead{color:var(--soft);margin:0 0 12px;font-size:14px}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:1px;margin-top:24px;background:var(--rule);
border:1px solid var(--rule);border-radius:8px;overflow:hidden}
.tiles>div{background:var(--paper);padding:15px 18px}
.tiles dt{font-size:12.5px;color:var(--soft)}
.tiles dd{margin:2px 0 0;font-size:23px;font-weight:620;font-variant-numeric:tabular-nums;letter-spacing:-.02em}
.tiles .note{display:block;font-size:12.5px;font-weight:400;color:var(--soft);letter-spacing:0}
.notice{border-left:4px solid var(--warn);background:var(--warn-bg);padding:12px 18px;margin-top:24px;border-radius:0 6px 6px 0}
.notice ul{margin:4px 0 0;padding-left:18px;font-size:13.5px}
figure{margin:0}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font:12px Inter,"Segoe UI",system-ui,Arial,"DejaVu Sans",sans-serif;fill:var(--soft)}
svg .name,svg .value{font-size:13px;fill:var(--ink)}
svg .value,svg .tick{font-variant-numeric:tabular-nums}
.grid{stroke:var(--grid)}.zero{stroke:var(--soft)}
.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}.s4{fill:var(--s4)}.s5{fill:var(--s5)}.s6{fill:var(--s6)}
.s7{fill:var(--s7)}.s8{fill:var(--s8)}.idle{fill:url(#hatch)}.lost{fill:var(--lost)}.down{fill:var(--down)}
.billing{fill:var(--billing)}.unused{fill:var(--unused)}.rest{fill:var(--down)}
.hatch-bg{fill:var(--idle)}.hatch-line{stroke:var(--idle-line);stroke-width:1.4}
.area{fill:var(--accent);opacity:.14}.line{fill:none;stroke:var(--accent);stroke-width:2.2;stroke-linejoin:round}
.dot{fill:var(--accent)}.range{fill:var(--accent);opacity:.1}
.forecast{stroke:var(--accent);stroke-width:2;stroke-dasharray:6 5}.limit{stroke:var(--bad);stroke-width:1.6}
svg .limit-name{fill:var(--bad)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:10px 0 0;font-size:13px}
.legend svg{display:inline-block;width:13px;height:13px;margin-right:6px;vertical-align:-1.5px}
table{border-collapse:collapse;width:100%;margin-top:12px;font-size:13px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:12.5px;padding-bottom:6px}
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;color:var(--soft)}
th[scope=row],td.text,th.text{text-align:left;overflow-wrap:anywhere;color:var(--ink);font-weight:400}
thead th.text{color:var(--soft);font-weight:600}
.quiet caption{position:absolute;clip-path:inset(50%)}
tfoot th,tfoot td{border-top:2px solid var(--ink);border-bottom:0;font-weight:650;color:var(--ink)}
.scroll{overflow-x:auto}
details{margin-top:12px}summary{cursor:pointer;color:var(--accent);font-size:13.5px}
.sign{display:grid;grid-template-columns:1fr 1fr;gap:40px;margin-top:56px;break-inside:avoid}
.sign p{border-top:1px solid var(--ink);padding-top:6px;margin:34px 0 0;color:var(--soft);font-size:12.5px}
footer{margin-top:36px;color:var(--soft);font-size:12.5px;border-top:1px solid var(--rule);padding-top:14px}
@media screen and (max-width:760px){main{margin:0;padding:24px 18px;border:0;border-radius:0}.tiles{grid-template-columns:1fr 1fr}
.facts{text-align:left}}
@media print{@page{size:A4;margin:14mm 13mm}:root{color-scheme:light;--page:#fff;--paper:#fff;--ink:#000;--soft:#444;
--rule:#bbb;--grid:#e2e2e2;--accent:#1f5fa8;--warn:#7a4700;--warn-bg:#fff;--bad:#b3261e;
--s1:#1f5fa8;--s2:#d9822b;--s3:#2e8b7a;--s4:#8e4c9e;--s5:#c2405a;--s6:#7a8b1f;--s7:#4aa3d8;--s8:#8a6d4f;
--idle:#d5dae0;--idle-line:#8c97a5;--lost:#c2405a;--down:#6b7684;--billing:#b08a3c;--unused:#8f6bb3}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}body{font-size:11px}
main{margin:0;padding:0;border:0;max-width:none}figure,.tiles,tr,.notice{break-inside:avoid}h2,.lead{break-after:avoid}
thead{display:table-header-group}tfoot{display:table-row-group}.scroll{overflow:visible}summary{display:none}
.tiles dd{font-size:17px}details::details-content{content-visibility:visible;height:auto}table{font-size:9.5px}th,td{padding:3px 5px}}
"""
