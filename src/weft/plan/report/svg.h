// Svg: a picture that is written as text: a few shapes, whose look classes say, and text that is escaped.
#pragma once
#include <string>
#include <string_view>

namespace weft::plan {

// For the content of an element and for attributes in quotes, of XML and HTML alike: names of models and files come
// from outside. Bytes that are not UTF-8 and control characters become U+FFFD.
std::string escaped(std::string_view text);

// "12.34": as many digits after the point as a picture needs; never an exponent.
std::string coordinate(double value);

// About how wide a text is in the sans-serif of the pictures, in the same units as its size.
double text_width(std::string_view text, double size);

class Svg {
 public:
  // title and description: what screen readers say. id: unique in a document of several pictures.
  Svg(std::string_view id, double width, std::string_view title, std::string_view description);

  // tooltip: shown beside the pointer; none where it is empty.
  void rect(std::string_view cls, double x, double y, double width, double height, std::string_view tooltip = {});
  void line(std::string_view cls, double x1, double y1, double x2, double y2);
  void path(std::string_view cls, std::string_view d, std::string_view tooltip = {});
  void circle(std::string_view cls, double x, double y, double radius, std::string_view tooltip = {});
  // anchor: "start", "middle" or "end"; y is the baseline.
  void text(std::string_view cls, double x, double y, std::string_view text, std::string_view anchor = "start");
  void open_group(std::string_view cls);
  void close_group() { body_ += "</g>\n"; }

  // The whole element. is_document: a file of its own, with the style and the namespace.
  std::string finish(double height, bool is_document = false) const;
  size_t bytes() const { return body_.size(); }

 private:
  void finish_shape(std::string_view element, std::string_view tooltip);

  std::string id_, title_, description_, body_;
  double width_;
};

// The colours of all pictures, in a light and a dark version.
std::string picture_style();

}  // namespace weft::plan
