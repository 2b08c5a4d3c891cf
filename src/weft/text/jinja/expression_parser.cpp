// Jinja's expressions. Precedence, from the loosest: if, or, and, not, comparisons, + -, ~, * / // %, **, signs;
// filters and tests bind to what stands directly before them.
#include "weft/text/jinja/expression_parser.h"

#include "weft/base/nearest.h"

namespace weft::jinja {

ExpressionPtr ExpressionParser::expression() {
  const ParserLevel level(level_, tokens_);
  ExpressionPtr value = logical_or();
  while (tokens_.is_name("if")) {
    const int line = tokens_.line();
    tokens_.next();
    ExpressionPtr condition = logical_or();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    value = make<Conditional>(line, std::move(condition), std::move(value), std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::expression_without_if() {
  const int line = tokens_.line();
  ExpressionPtr value = logical_or();
  if (!tokens_.is_sign(",")) return value;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(value));
  while (tokens_.skip_sign(",") && !tokens_.is(TokenKind::block_end) && !tokens_.is_name("if")) {
    items.push_back(logical_or());
  }
  return make<ListExpression>(line, std::move(items), true);
}

ExpressionPtr ExpressionParser::tuple_or_expression() {
  const int line = tokens_.line();
  ExpressionPtr value = expression();
  if (!tokens_.is_sign(",")) return value;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(value));
  while (tokens_.skip_sign(",")) {
    const bool is_end = tokens_.is(TokenKind::block_end) || tokens_.is(TokenKind::print_end) || tokens_.is_sign(")");
    if (is_end) break;
    items.push_back(expression());
  }
  return make<ListExpression>(line, std::move(items), true);
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr left = logical_and();
  for (int line = tokens_.line(); tokens_.skip_name("or"); line = tokens_.line()) {
    left = make<Binary>(line, BinaryOperator::logical_or, std::move(left), logical_and());
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr left = logical_not();
  for (int line = tokens_.line(); tokens_.skip_name("and"); line = tokens_.line()) {
    left = make<Binary>(line, BinaryOperator::logical_and, std::move(left), logical_not());
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  const int line = tokens_.line();
  if (!tokens_.is_name("not") || tokens_.peek_second().text == "in") return comparison();
  tokens_.next();
  const ParserLevel level(level_, tokens_);
  return make<Unary>(line, UnaryOperator::logical_not, logical_not());
}

std::optional<CompareOperator> ExpressionParser::compare_operator() {
  constexpr std::pair<std::string_view, CompareOperator> kSigns[] = {
      {"==", CompareOperator::equal},  {"!=", CompareOperator::not_equal},
      {"<", CompareOperator::less},    {"<=", CompareOperator::less_equal},
      {">", CompareOperator::greater}, {">=", CompareOperator::greater_equal}};
  for (const auto& [sign, op] : kSigns) {
    if (tokens_.skip_sign(sign)) return op;
  }
  if (tokens_.skip_name("in")) return CompareOperator::in;
  if (!tokens_.is_name("not") || tokens_.peek_second().text != "in") return {};
  tokens_.next();
  tokens_.next();
  return CompareOperator::not_in;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = tokens_.line();
  ExpressionPtr first = sum();
  std::vector<ExpressionPtr> operands;
  std::vector<CompareOperator> operators;
  while (const auto op = compare_operator()) {
    operators.push_back(*op);
    operands.push_back(sum());
  }
  if (operators.empty()) return first;
  operands.insert(operands.begin(), std::move(first));
  return make<Comparison>(line, std::move(operands), std::move(operators));
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  for (;;) {
    const int line = tokens_.line();
    if (tokens_.skip_sign("+")) {
      left = make<Binary>(line, BinaryOperator::add, std::move(left), concatenation());
    } else if (tokens_.skip_sign("-")) {
      left = make<Binary>(line, BinaryOperator::subtract, std::move(left), concatenation());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.line();
  ExpressionPtr first = product();
  if (!tokens_.is_sign("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (tokens_.skip_sign("~")) parts.push_back(product());
  return make<Concatenation>(line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  constexpr std::pair<std::string_view, BinaryOperator> kSigns[] = {{"*", BinaryOperator::multiply},
                                                                    {"/", BinaryOperator::divide},
                                                                    {"//", BinaryOperator::floor_divide},
                                                                    {"%", BinaryOperator::modulo}};
  ExpressionPtr left = power();
  for (;;) {
    const int line = tokens_.line();
    const auto found = std::find_if(std::begin(kSigns), std::end(kSigns),
                                    [&](const auto& sign) { return tokens_.is_sign(sign.first); });
    if (found == std::end(kSigns)) return left;
    tokens_.next();
    left = make<Binary>(line, found->second, std::move(left), power());
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  for (int line = tokens_.line(); tokens_.skip_sign("**"); line = tokens_.line()) {
    left = make<Binary>(line, BinaryOperator::power, std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const ParserLevel level(level_, tokens_);
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.skip_sign("-")) {
    value = make<Unary>(line, UnaryOperator::minus, unary(false));
  } else if (tokens_.skip_sign("+")) {
    value = make<Unary>(line, UnaryOperator::plus, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const int line = tokens_.line();
  if (tokens_.is(TokenKind::name)) return named();
  if (tokens_.is(TokenKind::literal)) {
    if (tokens_.peek().value.is_text()) return string();
    return make<Constant>(line, tokens_.next().value);
  }
  if (tokens_.is_sign("(")) return bracketed();
  if (tokens_.is_sign("[")) return list();
  if (tokens_.is_sign("{")) return dict();
  tokens_.fail_expected("a value");
}

ExpressionPtr ExpressionParser::named() {
  const int line = tokens_.line();
  std::string name = tokens_.next().text;
  if (name == "true" || name == "True") return make<Constant>(line, true);
  if (name == "false" || name == "False") return make<Constant>(line, false);
  if (name == "none" || name == "None") return make<Constant>(line, nullptr);
  names_.insert(name);
  return make<Name>(line, std::move(name));
}

// Strings side by side are one.
ExpressionPtr ExpressionParser::string() {
  const int line = tokens_.line();
  std::string text = tokens_.next().value.text();
  while (tokens_.is(TokenKind::literal) && tokens_.peek().value.is_text()) text += tokens_.next().value.text();
  return make<Constant>(line, Value(std::move(text)));
}

ExpressionPtr ExpressionParser::bracketed() {
  const int line = tokens_.line();
  tokens_.expect_sign("(");
  if (tokens_.skip_sign(")")) return make<ListExpression>(line, std::vector<ExpressionPtr>(), true);
  ExpressionPtr value = tuple_or_expression();
  tokens_.expect_sign(")");
  return value;
}

ExpressionPtr ExpressionParser::list() {
  const int line = tokens_.line();
  tokens_.expect_sign("[");
  std::vector<ExpressionPtr> items;
  while (!tokens_.skip_sign("]")) {
    if (!items.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("]")) break;
    items.push_back(expression());
  }
  return make<ListExpression>(line, std::move(items), false);
}

ExpressionPtr ExpressionParser::dict() {
  const int line = tokens_.line();
  tokens_.expect_sign("{");
  std::vector<ExpressionPtr> keys, values;
  while (!tokens_.skip_sign("}")) {
    if (!keys.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("}")) break;
    keys.push_back(expression());
    tokens_.expect_sign(":");
    values.push_back(expression());
  }
  return make<DictExpression>(line, std::move(keys), std::move(values));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  while (tokens_.is_sign(".") || tokens_.is_sign("[") || tokens_.is_sign("(")) value = postfix_part(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::postfix_part(ExpressionPtr value) {
  const int line = tokens_.line();
  if (tokens_.skip_sign(".")) return attribute(std::move(value));
  if (tokens_.skip_sign("[")) return subscript(std::move(value));
  tokens_.expect_sign("(");
  return make<CallExpression>(line, std::move(value), arguments());
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr value) {
  const int line = tokens_.line();
  if (tokens_.is(TokenKind::literal) && tokens_.peek().value.is_integer()) {
    return make<ItemExpression>(line, std::move(value), make<Constant>(line, tokens_.next().value));
  }
  return make<AttributeExpression>(line, std::move(value), tokens_.expect_name("a name"));
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = tokens_.line();
  ExpressionPtr parts[3];
  int num_colons = 0;
  while (!tokens_.is_sign("]")) {
    if (num_colons < 2 && tokens_.skip_sign(":")) {
      ++num_colons;
    } else if (!parts[num_colons]) {
      parts[num_colons] = num_colons == 0 ? tuple_or_expression() : expression();
    } else {
      tokens_.fail_expected("']'");
    }
  }
  tokens_.expect_sign("]");
  if (num_colons > 0) {
    return make<SliceExpression>(line, std::move(value), std::move(parts[0]), std::move(parts[1]),
                                 std::move(parts[2]));
  }
  if (!parts[0]) tokens_.fail("there is nothing between the brackets");
  return make<ItemExpression>(line, std::move(value), std::move(parts[0]));
}

ArgumentExpressions ExpressionParser::arguments() {
  ArgumentExpressions result;
  for (bool is_first = true; !tokens_.skip_sign(")"); is_first = false) {
    if (!is_first) tokens_.expect_sign(",");
    if (!is_first && tokens_.skip_sign(")")) break;
    if (tokens_.skip_sign("**")) {
      if (result.more_named) tokens_.fail("a call has ** twice");
      result.more_named = expression();
    } else if (tokens_.skip_sign("*")) {
      if (result.more_positional) tokens_.fail("a call has * twice");
      result.more_positional = expression();
    } else if (tokens_.is(TokenKind::name) && tokens_.peek_second().kind == TokenKind::sign &&
               tokens_.peek_second().text == "=") {
      std::string name = tokens_.next().text;
      tokens_.expect_sign("=");
      result.named.emplace_back(std::move(name), expression());
    } else {
      if (!result.named.empty()) tokens_.fail("an argument without a name follows one with a name");
      result.positional.push_back(expression());
    }
  }
  return result;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (;;) {
    const int line = tokens_.line();
    if (tokens_.skip_sign("|")) {
      auto [function, bound] = filter();
      value = make<FilterExpression>(line, std::move(value), function, std::move(bound));
    } else if (tokens_.skip_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.is_sign("(")) {
      value = postfix_part(std::move(value));
    } else {
      return value;
    }
  }
}

std::pair<Filter, ArgumentExpressions> ExpressionParser::filter() {
  const std::string name = tokens_.expect_name("the name of a filter");
  const Filter function = find_filter(name);
  if (!function) {
    tokens_.fail(fmt::format("there is no filter '{}'{}", excerpt(name, 60), did_you_mean(name, filter_names())));
  }
  return {function, tokens_.skip_sign("(") ? arguments() : ArgumentExpressions()};
}

// x is divisibleby 3, x is in [1, 2]: one argument may stand without brackets.
bool ExpressionParser::begins_argument_of_test() const {
  constexpr std::string_view kOthers[] = {"else", "or", "and", "is", "if", "not", "in"};
  if (tokens_.is(TokenKind::name)) {
    return std::find(std::begin(kOthers), std::end(kOthers), tokens_.peek().text) == std::end(kOthers);
  }
  return tokens_.is(TokenKind::literal) || tokens_.is_sign("[") || tokens_.is_sign("{");
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = tokens_.line();
  const bool is_negated = tokens_.skip_name("not");
  const std::string name = tokens_.expect_name("the name of a test");
  const Test function = find_test(name);
  if (!function) {
    tokens_.fail(fmt::format("there is no test '{}'{}", excerpt(name, 60), did_you_mean(name, test_names())));
  }
  ArgumentExpressions bound;
  if (tokens_.skip_sign("(")) {
    bound = arguments();
  } else if (begins_argument_of_test()) {
    bound.positional.push_back(postfix(primary()));
  }
  value = make<TestExpression>(line, std::move(value), function, std::move(bound));
  return is_negated ? make<Unary>(line, UnaryOperator::logical_not, std::move(value)) : std::move(value);
}

std::unique_ptr<const CallExpression> ExpressionParser::call() {
  const int line = tokens_.line();
  ExpressionPtr callee = primary();
  while (tokens_.is_sign(".") || tokens_.is_sign("[")) callee = postfix_part(std::move(callee));
  tokens_.expect_sign("(");
  return make<CallExpression>(line, std::move(callee), arguments());
}

}  // namespace weft::jinja
