// Runtime: the state of one rendering: scopes, output, and what is left of its limits.
#pragma once
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/text/jinja/value.h"

namespace weft::jinja {

// What a template may use. A step is one node evaluated; walking through or making large values costs more.
struct Limits {
  uint64_t max_steps = 5'000'000;
  uint64_t max_text_bytes = uint64_t(8) << 20;  // of the output, and of each value
  int max_depth = 800;                          // nodes inside each other, through calls of macros
  int64_t max_range = 1 << 16;                  // elements of one range()
};

// Half-open, in bytes of the output.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// The variables of a template, of a loop's turn, or of a call. Names are looked up outwards.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent)
      : parent_(std::move(parent)), level_(parent_ ? parent_->level_ + 1 : 0) {}
  uint64_t level() const { return level_; }        // scopes around it
  const Value* find(std::string_view name) const;  // here or further out; null when there is none
  void set(std::string_view name, Value value);    // always here
  void clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> parent_;
  uint64_t level_;
  std::map<std::string, Value, std::less<>> variables_;
};
using ScopePtr = std::shared_ptr<Scope>;

// What namespace() gives: the one thing that a template can change.
class Namespace final : public Object {
 public:
  std::string describe() const override { return "a namespace"; }
  std::optional<Value> attribute(std::string_view name) override;
  bool set_attribute(std::string_view name, const Value& value) override;
  void clear() { values_.clear(); }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

class Runtime {
 public:
  Runtime(const Limits& limits, std::time_t now) : limits_(limits), now_(now), steps_left_(limits.max_steps) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  std::time_t now() const { return now_; }
  int line() const { return line_; }  // where evaluation is, or stopped

  // All throw TemplateError when a limit is passed.
  void charge(uint64_t steps);
  void require_text_size(uint64_t bytes) const;  // before a text of this size is made

  const ScopePtr& scope() const { return scope_; }
  std::shared_ptr<Namespace> make_namespace();
  void keep(ScopePtr scope) { kept_scopes_.push_back(std::move(scope)); }  // a macro refers to it

  void write(std::string_view text);
  // What `body` writes, as a text.
  template <class Body>
  std::string capture(Body&& body);
  bool is_capturing() const { return capture_depth_ > 0; }
  const std::string& output() const { return *output_; }
  std::vector<TextSpan>& spans() { return spans_; }
  std::string take_output() { return std::move(page_); }

 private:
  friend class InScope;
  friend class OneDeeper;
  const Limits& limits_;
  std::time_t now_;
  uint64_t steps_left_;
  int depth_ = 0, line_ = 0, capture_depth_ = 0;
  ScopePtr scope_;
  std::string page_;
  std::string* output_ = &page_;
  std::vector<TextSpan> spans_;
  // What may refer to itself through the values in it, and is emptied at the end for that.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> kept_scopes_;
};

// Makes a scope the current one while it lives.
class InScope {
 public:
  InScope(Runtime& runtime, ScopePtr scope)
      : runtime_(runtime), outer_(std::exchange(runtime.scope_, std::move(scope))) {}
  ~InScope() { runtime_.scope_ = std::move(outer_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Runtime& runtime_;
  ScopePtr outer_;
};

// Counts a level of evaluation while it lives, and says where it is.
class OneDeeper {
 public:
  OneDeeper(Runtime& runtime, int line) : runtime_(runtime), outer_line_(runtime.line_) {
    runtime_.line_ = line;
    if (++runtime_.depth_ <= runtime_.limits_.max_depth) return;
    --runtime_.depth_;
    throw TemplateError("it is nested deeper than {} levels", runtime_.limits_.max_depth);
  }
  ~OneDeeper() { --runtime_.depth_; }
  OneDeeper(const OneDeeper&) = delete;
  OneDeeper& operator=(const OneDeeper&) = delete;
  // Evaluation is back at the outer line; after an error it stays where that happened.
  void leave() const { runtime_.line_ = outer_line_; }

 private:
  Runtime& runtime_;
  int outer_line_;
};

template <class Body>
std::string Runtime::capture(Body&& body) {
  std::string text;
  struct Restore {
    Runtime& runtime;
    std::string* outer;
    ~Restore() { runtime.output_ = outer, --runtime.capture_depth_; }
  } restore{*this, std::exchange(output_, &text)};
  ++capture_depth_;
  body();
  return text;
}

}  // namespace weft::jinja
