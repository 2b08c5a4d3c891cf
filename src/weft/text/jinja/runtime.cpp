// The state of a rendering, and its limits.
#include "weft/text/jinja/runtime.h"

namespace weft::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_.get()) {
    const auto found = scope->variables_.find(name);
    if (found != scope->variables_.end()) return &found->second;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  variables_.insert_or_assign(std::string(name), std::move(value));
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

bool Namespace::set_attribute(std::string_view name, const Value& value) {
  values_[std::string(name)] = value;
  return true;
}

Runtime::~Runtime() {
  for (const auto& space : namespaces_) space->clear();
  for (const ScopePtr& scope : kept_scopes_) scope->clear();
}

void Runtime::charge(uint64_t steps) {
  if (steps > steps_left_) throw TemplateError("it takes more than {} steps", limits_.max_steps);
  steps_left_ -= steps;
}

void Runtime::require_text_size(uint64_t bytes) const {
  if (bytes > limits_.max_text_bytes)
    throw TemplateError("it makes a text of more than {} bytes", limits_.max_text_bytes);
}

std::shared_ptr<Namespace> Runtime::make_namespace() {
  return namespaces_.emplace_back(std::make_shared<Namespace>());
}

void Runtime::write(std::string_view text) {
  require_text_size(output_->size() + text.size());
  output_->append(text);
}

}  // namespace weft::jinja
