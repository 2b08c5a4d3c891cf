// Statements of templates as a tree: each node writes its part of the output.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/text/jinja/expressions.h"

namespace weft::jinja {

// How a statement ends: a break or continue goes on to the innermost loop.
enum class Flow { normal, break_loop, continue_loop };

class Statement {
 public:
  explicit Statement(int line) : line_(line) {}
  virtual ~Statement() = default;
  Flow execute(Runtime& runtime) const;
  int line() const { return line_; }

 private:
  virtual Flow run(Runtime& runtime) const = 0;
  int line_;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Body = std::vector<StatementPtr>;
Flow execute(const Body& body, Runtime& runtime);

// What an assignment names: x; namespace.x; (a, b).
struct Target {
  std::string name;       // of the variable, unless there are parts
  std::string attribute;  // of the namespace `name`, when not empty
  std::vector<Target> parts;

  void assign(Runtime& runtime, const Value& value) const;
};

// | name(arguments), applied to a block.
struct BlockFilter {
  Filter filter;
  ArgumentExpressions arguments;
};

class Text final : public Statement {
 public:
  Text(int line, std::string text) : Statement(line), text_(std::move(text)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::string text_;
};

class Print final : public Statement {
 public:
  Print(int line, ExpressionPtr value) : Statement(line), value_(std::move(value)) {}

 private:
  Flow run(Runtime& runtime) const override;
  ExpressionPtr value_;
};

class If final : public Statement {
 public:
  struct Branch {
    ExpressionPtr condition;  // null for else
    Body body;
  };
  If(int line, std::vector<Branch> branches) : Statement(line), branches_(std::move(branches)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::vector<Branch> branches_;
};

class For final : public Statement {
 public:
  // `condition` may be null; `otherwise` runs when there is nothing to go through.
  For(int line, Target target, ExpressionPtr items, ExpressionPtr condition, Body body, Body otherwise)
      : Statement(line),
        target_(std::move(target)),
        items_(std::move(items)),
        condition_(std::move(condition)),
        body_(std::move(body)),
        otherwise_(std::move(otherwise)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::vector<Value> chosen_items(Runtime& runtime) const;
  Target target_;
  ExpressionPtr items_, condition_;
  Body body_, otherwise_;
};

class LoopControl final : public Statement {
 public:
  LoopControl(int line, Flow flow) : Statement(line), flow_(flow) {}

 private:
  Flow run(Runtime&) const override { return flow_; }
  Flow flow_;
};

class Set final : public Statement {
 public:
  Set(int line, Target target, ExpressionPtr value)
      : Statement(line), target_(std::move(target)), value_(std::move(value)) {}

 private:
  Flow run(Runtime& runtime) const override;
  Target target_;
  ExpressionPtr value_;
};

// {% set x | filter %}...{% endset %}, and {% filter f %}...{% endfilter %} without a target.
class FilteredBlock final : public Statement {
 public:
  FilteredBlock(int line, std::optional<Target> target, std::vector<BlockFilter> filters, Body body)
      : Statement(line), target_(std::move(target)), filters_(std::move(filters)), body_(std::move(body)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::optional<Target> target_;
  std::vector<BlockFilter> filters_;
  Body body_;
};

class With final : public Statement {
 public:
  With(int line, std::vector<std::pair<Target, ExpressionPtr>> assignments, Body body)
      : Statement(line), assignments_(std::move(assignments)), body_(std::move(body)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::vector<std::pair<Target, ExpressionPtr>> assignments_;
  Body body_;
};

// {% generation %}...{% endgeneration %}: what a model answers.
class Generation final : public Statement {
 public:
  Generation(int line, Body body) : Statement(line), body_(std::move(body)) {}

 private:
  Flow run(Runtime& runtime) const override;
  Body body_;
};

// What a macro and a {% call %} block have in common.
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with null where there is no default
  bool takes_more_positional = false, takes_more_named = false;   // its body reads varargs, kwargs
  Body body;
};

class Macro final : public Statement {
 public:
  Macro(int line, MacroDefinition definition) : Statement(line), definition_(std::move(definition)) {}

 private:
  Flow run(Runtime& runtime) const override;
  MacroDefinition definition_;
};

class CallBlock final : public Statement {
 public:
  CallBlock(int line, std::unique_ptr<const CallExpression> call, MacroDefinition caller)
      : Statement(line), call_(std::move(call)), caller_(std::move(caller)) {}

 private:
  Flow run(Runtime& runtime) const override;
  std::unique_ptr<const CallExpression> call_;
  MacroDefinition caller_;
};

}  // namespace weft::jinja
