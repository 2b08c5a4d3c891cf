// Functions as values: built-in ones, methods bound to a value, and macros.
#pragma once
#include <functional>

#include "weft/text/jinja/statements.h"

namespace weft::jinja {

class Function final : public Object {
 public:
  using Body = std::function<Value(Runtime&, const Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}

  std::string describe() const override { return "the function " + name_; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override { return body_(runtime, arguments); }

 private:
  std::string name_;
  Body body_;
};
inline Value make_function(std::string name, Function::Body body) {
  return std::shared_ptr<Object>(std::make_shared<Function>(std::move(name), std::move(body)));
}

// A macro that looks names up where it is defined. `definition` must outlive the rendering.
Value make_macro(Runtime& runtime, const MacroDefinition& definition);

}  // namespace weft::jinja
