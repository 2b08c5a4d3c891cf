// Rendering: variables and functions into the outermost scope, then the statements.
#include "weft/text/jinja/template.h"

namespace weft::jinja {

Template::Template(std::string_view text, std::string source)
    : source_(std::move(source)), parsed_(parse_template(text, source_)) {}

Rendered Template::render(const std::vector<std::pair<std::string, Value>>& variables, const Limits& limits,
                          std::time_t now) const {
  Runtime runtime(limits, now);
  try {
    const auto globals = std::make_shared<Scope>(nullptr);
    define_globals(*globals);
    for (const auto& [name, value] : variables) globals->set(name, value);
    const InScope inside(runtime, std::make_shared<Scope>(globals));
    execute(parsed_.body, runtime);
  } catch (const TemplateError& e) {
    throw Error("{}, line {}: {}", source_, runtime.line(), e.what());
  }
  return {runtime.take_output(), std::move(runtime.spans())};
}

}  // namespace weft::jinja
