// Calls of macros: arguments to parameters, then the body into a text.
#include "weft/text/jinja/macro.h"

namespace weft::jinja {
namespace {

constexpr std::string_view kCaller = "caller", kMorePositional = "varargs", kMoreNamed = "kwargs";

class MacroFunction final : public Object {
 public:
  MacroFunction(const MacroDefinition& definition, ScopePtr scope)
      : definition_(definition), scope_(std::move(scope)) {}

  std::string describe() const override { return "the macro " + definition_.name; }
  bool is_callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) override {
    return name == "name" ? std::optional<Value>(definition_.name) : std::nullopt;
  }

  Value call(Runtime& runtime, const Arguments& arguments) override {
    const InScope inside(runtime, std::make_shared<Scope>(scope_));
    bind_positional(runtime, arguments);
    bind_named(runtime, arguments);
    bind_defaults(runtime, arguments);
    return runtime.capture([&] { execute(definition_.body, runtime); });
  }

 private:
  void bind_positional(Runtime& runtime, const Arguments& arguments) const {
    const auto& parameters = definition_.parameters;
    std::vector<Value> more;
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      if (i < parameters.size()) {
        runtime.scope()->set(parameters[i].first, arguments.positional[i]);
      } else {
        more.push_back(arguments.positional[i]);
      }
    }
    if (!more.empty() && !definition_.takes_more_positional) {
      throw TemplateError("the macro {} takes {} arguments, not {}", definition_.name, parameters.size(),
                          arguments.positional.size());
    }
    if (definition_.takes_more_positional) runtime.scope()->set(kMorePositional, Value::tuple(std::move(more)));
  }

  void bind_named(Runtime& runtime, const Arguments& arguments) const {
    std::vector<std::pair<Value, Value>> more;
    for (const auto& [name, value] : arguments.named) {
      const size_t position = position_of(name);
      if (position < arguments.positional.size() && position < definition_.parameters.size()) {
        throw TemplateError("the macro {} gets the argument '{}' twice", definition_.name, name);
      }
      if (position < definition_.parameters.size() || name == kCaller) {
        runtime.scope()->set(name, value);
      } else {
        more.emplace_back(name, value);
      }
    }
    if (!more.empty() && !definition_.takes_more_named) {
      throw TemplateError("the macro {} has no parameter '{}'", definition_.name, more.front().first.text());
    }
    if (definition_.takes_more_named) runtime.scope()->set(kMoreNamed, Value::dict(std::move(more)));
  }

  void bind_defaults(Runtime& runtime, const Arguments& arguments) const {
    for (size_t i = arguments.positional.size(); i < definition_.parameters.size(); ++i) {
      const auto& [name, otherwise] = definition_.parameters[i];
      const bool is_given = std::any_of(arguments.named.begin(), arguments.named.end(),
                                        [&, &wanted = name](const auto& named) { return named.first == wanted; });
      if (is_given) continue;
      runtime.scope()->set(name, otherwise
                                     ? otherwise->evaluate(runtime)
                                     : Value::undefined(fmt::format("the parameter '{}' of the macro {} is not given",
                                                                    name, definition_.name)));
    }
  }

  size_t position_of(std::string_view name) const {
    const auto& parameters = definition_.parameters;
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& parameter) { return parameter.first == name; });
    return size_t(found - parameters.begin());
  }

  const MacroDefinition& definition_;
  ScopePtr scope_;
};

}  // namespace

Value make_macro(Runtime& runtime, const MacroDefinition& definition) {
  runtime.keep(runtime.scope());
  return std::shared_ptr<Object>(std::make_shared<MacroFunction>(definition, runtime.scope()));
}

}  // namespace weft::jinja
