// Jinja's statements by recursive descent.
#include "weft/text/jinja/parser.h"

#include "weft/text/jinja/expression_parser.h"

namespace weft::jinja {
namespace {

class StatementParser {
 public:
  StatementParser(std::string_view text, std::string_view source) : tokens_(text, source) {}

  ParsedTemplate run() {
    Body body = read_body();
    if (!tokens_.is(TokenKind::end)) tokens_.fail(fmt::format("'{}' ends nothing", excerpt(tokens_.peek().text, 60)));
    return {std::move(body), has_generation_};
  }

 private:
  // Statements up to the end, or to a tag that begins with `end...`, else or elif, of which the name is next.
  Body read_body() {
    const ParserLevel level(level_, tokens_);
    Body body;
    for (;;) {
      const int line = tokens_.line();
      if (tokens_.is(TokenKind::data)) {
        body.push_back(std::make_unique<Text>(line, tokens_.next().text));
      } else if (tokens_.skip(TokenKind::print_begin)) {
        body.push_back(std::make_unique<Print>(line, expressions_.tuple_or_expression()));
        tokens_.expect(TokenKind::print_end, "}}");
      } else if (tokens_.skip(TokenKind::block_begin)) {
        if (ends_body()) return body;
        body.push_back(read_statement());
      } else {
        return body;
      }
    }
  }

  bool ends_body() const {
    if (!tokens_.is(TokenKind::name)) tokens_.fail_expected("the name of a statement");
    const std::string& name = tokens_.peek().text;
    return name.starts_with("end") || name == "else" || name == "elif";
  }

  StatementPtr read_statement() {
    struct Row {
      std::string_view name;
      StatementPtr (StatementParser::*read)(int line);
    };
    constexpr Row kStatements[] = {
        {"if", &StatementParser::read_if},       {"for", &StatementParser::read_for},
        {"set", &StatementParser::read_set},     {"macro", &StatementParser::read_macro},
        {"call", &StatementParser::read_call},   {"filter", &StatementParser::read_filter_block},
        {"with", &StatementParser::read_with},   {"generation", &StatementParser::read_generation},
        {"break", &StatementParser::read_break}, {"continue", &StatementParser::read_continue},
    };
    const int line = tokens_.line();
    for (const Row& row : kStatements) {
      if (tokens_.skip_name(row.name)) return (this->*row.read)(line);
    }
    tokens_.fail(fmt::format("weft's templates have no statement '{}'", excerpt(tokens_.peek().text, 60)));
  }

  void expect_block_end() { tokens_.expect(TokenKind::block_end, "%}"); }

  // The body of a tag that is closed by `end`, from after its opening tag to after its closing one.
  Body read_closed_body(std::string_view end) {
    expect_block_end();
    Body body = read_body();
    tokens_.expect_name_is(end);
    expect_block_end();
    return body;
  }

  StatementPtr read_if(int line) {
    std::vector<If::Branch> branches;
    ExpressionPtr condition = expressions_.tuple_or_expression();
    for (;;) {
      expect_block_end();
      Body body = read_body();
      const bool was_else = condition == nullptr;
      branches.push_back({std::move(condition), std::move(body)});
      if (tokens_.skip_name("endif")) break;
      if (was_else) tokens_.fail_expected("endif");
      if (tokens_.skip_name("elif")) {
        condition = expressions_.tuple_or_expression();
      } else if (!tokens_.skip_name("else")) {
        tokens_.fail_expected("endif");
      }
    }
    expect_block_end();
    return std::make_unique<If>(line, std::move(branches));
  }

  StatementPtr read_for(int line) {
    Target target = read_target(false);
    tokens_.expect_name_is("in");
    ExpressionPtr items = expressions_.expression_without_if();
    ExpressionPtr condition = tokens_.skip_name("if") ? expressions_.expression() : nullptr;
    if (tokens_.is_name("recursive")) tokens_.fail("weft's templates have no recursive loops: write a macro");
    expect_block_end();
    ++loops_;
    Body body = read_body(), otherwise;
    --loops_;
    if (tokens_.skip_name("else")) {
      expect_block_end();
      otherwise = read_body();
    }
    tokens_.expect_name_is("endfor");
    expect_block_end();
    return std::make_unique<For>(line, std::move(target), std::move(items), std::move(condition), std::move(body),
                                 std::move(otherwise));
  }

  StatementPtr read_break(int line) { return read_loop_control(line, Flow::break_loop); }
  StatementPtr read_continue(int line) { return read_loop_control(line, Flow::continue_loop); }
  StatementPtr read_loop_control(int line, Flow flow) {
    if (loops_ == 0) tokens_.fail("a break or continue stands outside of all loops");
    expect_block_end();
    return std::make_unique<LoopControl>(line, flow);
  }

  StatementPtr read_set(int line) {
    Target target = read_target(true);
    if (tokens_.skip_sign("=")) {
      ExpressionPtr value = expressions_.tuple_or_expression();
      expect_block_end();
      return std::make_unique<Set>(line, std::move(target), std::move(value));
    }
    if (!target.parts.empty()) tokens_.fail_expected("'='");
    std::vector<BlockFilter> filters = read_block_filters();
    Body body = read_closed_body("endset");
    return std::make_unique<FilteredBlock>(line, std::move(target), std::move(filters), std::move(body));
  }

  StatementPtr read_filter_block(int line) {
    std::vector<BlockFilter> filters;
    auto [function, arguments] = expressions_.filter();
    filters.push_back({function, std::move(arguments)});
    for (BlockFilter& filter : read_block_filters()) filters.push_back(std::move(filter));
    Body body = read_closed_body("endfilter");
    return std::make_unique<FilteredBlock>(line, std::nullopt, std::move(filters), std::move(body));
  }

  std::vector<BlockFilter> read_block_filters() {
    std::vector<BlockFilter> filters;
    while (tokens_.skip_sign("|")) {
      auto [function, arguments] = expressions_.filter();
      filters.push_back({function, std::move(arguments)});
    }
    return filters;
  }

  StatementPtr read_with(int line) {
    std::vector<std::pair<Target, ExpressionPtr>> assignments;
    while (!tokens_.is(TokenKind::block_end)) {
      if (!assignments.empty()) tokens_.expect_sign(",");
      Target target = read_target(false);
      tokens_.expect_sign("=");
      assignments.emplace_back(std::move(target), expressions_.expression());
    }
    return std::make_unique<With>(line, std::move(assignments), read_closed_body("endwith"));
  }

  StatementPtr read_generation(int line) {
    has_generation_ = true;
    return std::make_unique<Generation>(line, read_closed_body("endgeneration"));
  }

  StatementPtr read_macro(int line) {
    MacroDefinition macro{.name = tokens_.expect_name("the name of the macro")};
    tokens_.expect_sign("(");
    read_parameters(macro);
    read_macro_body(macro, "endmacro");
    return std::make_unique<Macro>(line, std::move(macro));
  }

  StatementPtr read_call(int line) {
    MacroDefinition caller{.name = "caller"};
    if (tokens_.skip_sign("(")) read_parameters(caller);
    std::unique_ptr<const CallExpression> call = expressions_.call();
    read_macro_body(caller, "endcall");
    return std::make_unique<CallBlock>(line, std::move(call), std::move(caller));
  }

  void read_parameters(MacroDefinition& macro) {
    for (bool is_first = true; !tokens_.skip_sign(")"); is_first = false) {
      if (!is_first) tokens_.expect_sign(",");
      if (!is_first && tokens_.skip_sign(")")) break;
      std::string name = tokens_.expect_name("the name of a parameter");
      ExpressionPtr otherwise = tokens_.skip_sign("=") ? expressions_.expression() : nullptr;
      const bool had_default = !macro.parameters.empty() && macro.parameters.back().second;
      if (!otherwise && had_default) tokens_.fail("a parameter without a default follows one with a default");
      macro.parameters.emplace_back(std::move(name), std::move(otherwise));
    }
  }

  void read_macro_body(MacroDefinition& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    auto outer_names = std::exchange(expressions_.names(), {});
    macro.body = read_closed_body(end);
    macro.takes_more_positional = expressions_.names().contains("varargs");
    macro.takes_more_named = expressions_.names().contains("kwargs");
    expressions_.names().swap(outer_names);
    loops_ = loops;
  }

  // x; x, y; (x, y); and namespace.x where that can be set.
  Target read_target(bool with_attribute) {
    const ParserLevel level(level_, tokens_);
    Target first = read_single_target(with_attribute);
    if (!tokens_.is_sign(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (tokens_.skip_sign(",") && (tokens_.is(TokenKind::name) || tokens_.is_sign("(")) &&
           !tokens_.is_name("in")) {
      tuple.parts.push_back(read_single_target(with_attribute));
    }
    return tuple;
  }

  Target read_single_target(bool with_attribute) {
    if (tokens_.skip_sign("(")) {
      Target inner = read_target(with_attribute);
      tokens_.expect_sign(")");
      return inner;
    }
    Target target{.name = tokens_.expect_name("the name of a variable")};
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None", "loop"};
    if (std::find(std::begin(kConstants), std::end(kConstants), target.name) != std::end(kConstants)) {
      tokens_.fail(fmt::format("'{}' cannot be set", target.name));
    }
    if (with_attribute && tokens_.skip_sign(".")) target.attribute = tokens_.expect_name("a name");
    return target;
  }

  TokenStream tokens_;
  int level_ = 0, loops_ = 0;
  ExpressionParser expressions_{tokens_, level_};
  bool has_generation_ = false;
};

}  // namespace

ParsedTemplate parse_template(std::string_view text, std::string_view source) {
  return StatementParser(text, source).run();
}

}  // namespace weft::jinja
