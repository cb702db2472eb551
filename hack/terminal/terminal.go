// Package terminal draws the text of a terminal as a picture, for documents. The picture is an SVG, which is light or
// dark as the reader prefers.
package terminal

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

const (
	columns    = 112
	charWidth  = 7.875
	lineHeight = 19
	top, left  = 58, 20
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
  <!-- %s -->
  <title id="title">%s</title>
  <style>
    .paper { fill: #ffffff; stroke: #d0d7de; }
    .bar { fill: #f6f8fa; stroke: #d0d7de; }
    .button { fill: #d0d7de; }
    text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px;
      fill: #1f2328; white-space: pre; }
    .title { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a; }
    .command { font-weight: 600; fill: #1d4ed8; }
    .step { font-weight: 600; fill: #15803d; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; }
      .bar { fill: #161b22; stroke: #30363d; }
      .button { fill: #30363d; }
      text { fill: #e6edf3; }
      .title { fill: #9ea7b3; }
      .command { fill: #58a6ff; }
      .step { fill: #3fb950; }
    }
  </style>
  <rect class="paper" x="1" y="1" width="%d" height="%d" rx="10"/>
  <path class="bar" d="M 1 34 V 11 A 10 10 0 0 1 11 1 H %d A 10 10 0 0 1 %d 11 V 34 z"/>
  <circle class="button" cx="22" cy="18" r="5"/>
  <circle class="button" cx="40" cy="18" r="5"/>
  <circle class="button" cx="58" cy="18" r="5"/>
  <text class="title" x="%d" y="22" text-anchor="middle">%s</text>
`

// Picture draws lines of text. title is in the bar above them, and comment is for those who edit the file. Lines that
// begin with $ or with ==> are emphasized.
func Picture(title, comment string, lines []string) string {
	width, height := int(2*left+columns*charWidth), top+lineHeight*len(lines)
	var svg strings.Builder
	title = html.EscapeString(title)
	fmt.Fprintf(&svg, head, width, height, comment, title, width-2, height-2, width-11, width-1, width/2, title)
	for i, line := range lines {
		fmt.Fprintf(&svg, "  <text%s x=\"%d\" y=\"%d\" xml:space=\"preserve\">%s</text>\n", class(line), left,
			top+lineHeight*i, html.EscapeString(line))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// class returns the attribute of a line that is emphasized.
func class(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return ` class="command"`
	case strings.HasPrefix(line, "==> "):
		return ` class="step"`
	}
	return ""
}

var drawn = regexp.MustCompile(`xml:space="preserve">(.*)</text>`)

// Lines returns the lines of text in a picture.
func Lines(picture string) []string {
	var lines []string
	for _, found := range drawn.FindAllStringSubmatch(picture, -1) {
		lines = append(lines, html.UnescapeString(found[1]))
	}
	return lines
}
