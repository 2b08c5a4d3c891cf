// ExpressionParser: Jinja's expressions by recursive descent, one function for each level of precedence.
#pragma once
#include <set>

#include "weft/text/jinja/expressions.h"
#include "weft/text/jinja/token_stream.h"

namespace weft::jinja {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, int& level) : tokens_(tokens), level_(level) {}

  ExpressionPtr expression();             // with inline if
  ExpressionPtr expression_without_if();  // what `for ... in` goes through: its `if` belongs to the loop
  ExpressionPtr tuple_or_expression();    // a, b without brackets is a tuple
  ArgumentExpressions arguments();        // after the opening bracket
  // name(arguments), after a '|'.
  std::pair<Filter, ArgumentExpressions> filter();
  // A call, for {% call %}; fails when there is anything else.
  std::unique_ptr<const CallExpression> call();

  // Names that were read since the last clear(): a macro's body tells by them what it uses.
  std::set<std::string, std::less<>>& names() { return names_; }

 private:
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr named();
  ExpressionPtr string();
  ExpressionPtr bracketed();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr postfix_part(ExpressionPtr value);
  ExpressionPtr attribute(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  bool begins_argument_of_test() const;
  std::optional<CompareOperator> compare_operator();

  // A node; a tree that is too deep fails at this place.
  template <class Node, class... Args>
  std::unique_ptr<const Node> make(int line, Args&&... args) {
    try {
      return std::make_unique<const Node>(line, std::forward<Args>(args)...);
    } catch (const TemplateError& e) {
      tokens_.fail(e.what());
    }
  }

  TokenStream& tokens_;
  int& level_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace weft::jinja
