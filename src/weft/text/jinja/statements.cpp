// How statements write their output.
#include "weft/text/jinja/statements.h"

#include "weft/text/jinja/loop.h"
#include "weft/text/jinja/macro.h"

namespace weft::jinja {
namespace {

ScopePtr inner_scope(Runtime& runtime) { return std::make_shared<Scope>(runtime.scope()); }

// A block with a scope of its own.
Flow execute_inside(const Body& body, Runtime& runtime) {
  const InScope inside(runtime, inner_scope(runtime));
  return execute(body, runtime);
}

}  // namespace

Flow Statement::execute(Runtime& runtime) const {
  const OneDeeper level(runtime, line_);
  runtime.charge(1);
  const Flow flow = run(runtime);
  level.leave();
  return flow;
}

Flow execute(const Body& body, Runtime& runtime) {
  for (const StatementPtr& statement : body) {
    const Flow flow = statement->execute(runtime);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

void Target::assign(Runtime& runtime, const Value& value) const {
  if (!attribute.empty()) {
    const Value* space = runtime.scope()->find(name);
    if (!space) throw TemplateError("'{}' is undefined", name);
    if (!space->is_object() || !space->object().set_attribute(attribute, value)) {
      throw TemplateError("{}.{} cannot be set: {} is {}, not a namespace", name, attribute, name, space->describe());
    }
  } else if (parts.empty()) {
    runtime.scope()->set(name, value);
  } else {
    const std::vector<Value> values = elements_of(runtime, value);
    if (values.size() != parts.size()) {
      throw TemplateError("{} values cannot be assigned to {} names", values.size(), parts.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) parts[i].assign(runtime, values[i]);
  }
}

Flow Text::run(Runtime& runtime) const {
  runtime.charge(text_.size() / 32);
  runtime.write(text_);
  return Flow::normal;
}

Flow Print::run(Runtime& runtime) const {
  const Value value = value_->evaluate(runtime);
  runtime.write(text_of(runtime, value));
  return Flow::normal;
}

Flow If::run(Runtime& runtime) const {
  for (const Branch& branch : branches_) {
    if (!branch.condition || branch.condition->evaluate(runtime).truthy()) {
      return jinja::execute(branch.body, runtime);
    }
  }
  return Flow::normal;
}

// With a condition, `loop` counts only what it lets through.
std::vector<Value> For::chosen_items(Runtime& runtime) const {
  std::vector<Value> items = elements_of(runtime, items_->evaluate(runtime));
  if (!condition_) return items;
  std::vector<Value> chosen;
  for (Value& item : items) {
    const InScope turn(runtime, inner_scope(runtime));
    target_.assign(runtime, item);
    if (condition_->evaluate(runtime).truthy()) chosen.push_back(std::move(item));
  }
  return chosen;
}

Flow For::run(Runtime& runtime) const {
  const auto loop = std::make_shared<Loop>(chosen_items(runtime));
  if (loop->is_done()) return execute_inside(otherwise_, runtime);
  const Loop::Ending ending{*loop};
  for (; !loop->is_done(); loop->advance()) {
    runtime.charge(1);
    const InScope turn(runtime, inner_scope(runtime));
    runtime.scope()->set("loop", std::shared_ptr<Object>(loop));
    target_.assign(runtime, loop->current());
    if (jinja::execute(body_, runtime) == Flow::break_loop) break;
  }
  return Flow::normal;
}

Flow Set::run(Runtime& runtime) const {
  target_.assign(runtime, value_->evaluate(runtime));
  return Flow::normal;
}

Flow FilteredBlock::run(Runtime& runtime) const {
  Flow flow = Flow::normal;
  Value value = runtime.capture([&] { flow = execute_inside(body_, runtime); });
  for (const BlockFilter& filter : filters_) {
    value = filter.filter(runtime, value, filter.arguments.evaluate(runtime));
  }
  if (target_) {
    target_->assign(runtime, value);
  } else {
    runtime.write(text_of(runtime, value));
  }
  return flow;
}

Flow With::run(Runtime& runtime) const {
  std::vector<Value> values;  // all of them computed outside
  for (const auto& [target, value] : assignments_) values.push_back(value->evaluate(runtime));
  const InScope inside(runtime, inner_scope(runtime));
  for (size_t i = 0; i < values.size(); ++i) assignments_[i].first.assign(runtime, values[i]);
  return jinja::execute(body_, runtime);
}

Flow Generation::run(Runtime& runtime) const {
  if (runtime.is_capturing()) {
    throw TemplateError("a generation block inside a macro or a set block has no place in the output");
  }
  const size_t begin = runtime.output().size();
  const Flow flow = execute_inside(body_, runtime);
  runtime.spans().push_back({begin, runtime.output().size()});
  return flow;
}

Flow Macro::run(Runtime& runtime) const {
  runtime.scope()->set(definition_.name, make_macro(runtime, definition_));
  return Flow::normal;
}

Flow CallBlock::run(Runtime& runtime) const {
  runtime.write(text_of(runtime, call_->call_with(runtime, make_macro(runtime, caller_))));
  return Flow::normal;
}

}  // namespace weft::jinja
