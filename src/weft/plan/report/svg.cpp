// Svg: text that is put together.
#include "weft/plan/report/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "weft/text/utf8.h"

namespace weft::plan {

std::string escaped(std::string_view raw) {
  const std::string text = replace_invalid_utf8(raw);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      case '\n':
      case '\t': out += ' '; break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f)
          out += "\xEF\xBF\xBD";
        else
          out += c;
      }
    }
  }
  return out;
}

std::string coordinate(double value) {
  if (!std::isfinite(value)) value = 0;
  std::string text = fmt::format("{:.2f}", value);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double size) {
  double ems = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // inside a character
    const bool is_narrow = std::string_view(" .,:;il|'()[]fjt/").find(c) != std::string_view::npos;
    const bool is_wide = (c >= 'A' && c <= 'Z') || c == 'm' || c == 'w' || c == '%';
    ems += is_narrow ? 0.32 : is_wide ? 0.76 : 0.57;
  }
  return ems * size;
}

Svg::Svg(std::string_view id, double width, std::string_view title, std::string_view description)
    : id_(escaped(id)), title_(escaped(title)), description_(escaped(description)), width_(width) {}

void Svg::finish_shape(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty())
    body_ += "/>\n";
  else
    body_ += fmt::format("><title>{}</title></{}>\n", escaped(tooltip), element);
}

void Svg::rect(std::string_view cls, double x, double y, double width, double height, std::string_view tooltip) {
  body_ += "<rect";
  if (!cls.empty()) body_ += fmt::format(" class=\"{}\"", cls);
  body_ += fmt::format(" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", coordinate(x), coordinate(y),
                       coordinate(width), coordinate(height));
  finish_shape("rect", tooltip);
}

void Svg::line(std::string_view cls, double x1, double y1, double x2, double y2) {
  body_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", cls, coordinate(x1),
                       coordinate(y1), coordinate(x2), coordinate(y2));
}

void Svg::path(std::string_view cls, std::string_view d, std::string_view tooltip) {
  body_ += fmt::format("<path class=\"{}\" d=\"{}\"", cls, d);
  finish_shape("path", tooltip);
}

void Svg::circle(std::string_view cls, double x, double y, double radius, std::string_view tooltip) {
  body_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"", cls, coordinate(x), coordinate(y),
                       coordinate(radius));
  finish_shape("circle", tooltip);
}

void Svg::text(std::string_view cls, double x, double y, std::string_view text, std::string_view anchor) {
  body_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\"", cls, coordinate(x), coordinate(y));
  if (anchor != "start") body_ += fmt::format(" text-anchor=\"{}\"", anchor);
  body_ += fmt::format(">{}</text>\n", escaped(text));
}

void Svg::open_group(std::string_view cls) { body_ += fmt::format("<g class=\"{}\">\n", cls); }

std::string Svg::finish(double height, bool is_document) const {
  const std::string size = fmt::format("viewBox=\"0 0 {} {}\"", coordinate(width_), coordinate(height));
  std::string out;
  if (is_document)
    out = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" {} width=\"{}\" height=\"{}\"",
        size, coordinate(width_), coordinate(height));
  else
    out = fmt::format("<svg class=\"picture\" {}", size);
  out += fmt::format(
      " role=\"img\" aria-labelledby=\"{0}-title {0}-desc\">\n<title id=\"{0}-title\">{1}</title>\n"
      "<desc id=\"{0}-desc\">{2}</desc>\n",
      id_, title_, description_);
  if (is_document) {
    out += "<style>\n" + picture_style() + "</style>\n";
    out += fmt::format("<rect class=\"page\" x=\"0\" y=\"0\" width=\"{}\" height=\"{}\"/>\n", coordinate(width_),
                       coordinate(height));
  }
  return out + body_ + "</svg>\n";
}

// Hues that those who do not see red from green tell apart (after Okabe and Ito, 2008), a little lighter.
std::string picture_style() {
  return R"(.picture{font:11px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;display:block;max-width:100%;height:auto}
.page{fill:#fff}.lane{fill:#eceff3}.grid{stroke:#d5dae1;stroke-width:1}.axis{stroke:#8a94a3;stroke-width:1}
.label{fill:#2b3440}.small{fill:#5c6775;font-size:10px}.head{fill:#1b222b;font-size:13px;font-weight:600}
.in{fill:#10161d;font-size:9px}.limit{stroke:#c62828;stroke-width:1.5;stroke-dasharray:5 4;fill:none}.limit-text{fill:#c62828;font-size:10px}
.mark{fill:#1b222b;stroke:#fff;stroke-width:1.5}.mark-line{stroke:#1b222b;stroke-width:1}
.k-forward{fill:#5aa9e6}.k-backward{fill:#f2a541}.k-weight-gradient{fill:#f0d65c}.k-recompute{fill:#b79ce0}
.k-optimizer{fill:#4fb286}.k-wait{fill:#f4b6b0}.k-collective{fill:#d9534f}.k-message{fill:#8c6d57}.k-other{fill:#a9b4c0}
.m-weights{fill:#5aa9e6}.m-gradients{fill:#f2a541}.m-optimizer{fill:#4fb286}.m-activations{fill:#b79ce0}.m-communication{fill:#d9534f}
.p-products{fill:#5aa9e6}.p-attention{fill:#2f6fb0}.p-kernels{fill:#b79ce0}.p-update{fill:#4fb286}.p-wait{fill:#d9534f}.p-bubble{fill:#c3cad3}
.c-same{stroke:#2f6fb0;fill:none;stroke-width:2}.c-same-dot{fill:#2f6fb0}.c-grown{stroke:#d9822b;fill:none;stroke-width:2}.c-grown-dot{fill:#d9822b}
.ideal{stroke:#8a94a3;stroke-width:1;stroke-dasharray:3 3;fill:none}
@media (prefers-color-scheme:dark){
.page{fill:#12171d}.lane{fill:#242c36}.grid{stroke:#303a46}.axis{stroke:#758294}
.label{fill:#d6dde6}.small{fill:#9aa7b6}.head{fill:#f0f4f8}.limit{stroke:#ff8a80}.limit-text{fill:#ff8a80}
.mark{fill:#f0f4f8;stroke:#12171d}.mark-line{stroke:#f0f4f8}.k-other{fill:#7c8896}.k-message{fill:#b08d74}.k-wait{fill:#a8645e}
.p-bubble{fill:#4a5563}.p-attention,.c-same-dot{fill:#7fb6ea}.c-same{stroke:#7fb6ea}.c-grown{stroke:#f0a860}.c-grown-dot{fill:#f0a860}
.p-attention{fill:#3f82c6}}
)";
}

}  // namespace weft::plan
