// Template: a Jinja template as chat templates are written, rendered inside limits and without any way out.
#pragma once
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/text/jinja/parser.h"
#include "weft/text/jinja/runtime.h"

namespace weft::jinja {

struct Rendered {
  std::string text;
  std::vector<TextSpan> generations;  // what stood in {% generation %} blocks, in order
};

// A parsed template, which many threads may render at once. It can read its variables, compute and write text; there
// are no files, no attributes beyond those of library.h, and nothing it is given can be changed.
class Template {
 public:
  // `source` names the template in messages. Throws Error "SOURCE, line N: ...".
  Template(std::string_view text, std::string source);

  // Throws Error "SOURCE, line N: ..." for whatever goes wrong, what the template itself raises included. `now` is
  // what strftime_now formats, in local time.
  Rendered render(const std::vector<std::pair<std::string, Value>>& variables, const Limits& limits = {},
                  std::time_t now = 0) const;

  const std::string& source() const { return source_; }
  bool has_generation_blocks() const { return parsed_.has_generation_blocks; }

 private:
  std::string source_;
  ParsedTemplate parsed_;
};

}  // namespace weft::jinja
