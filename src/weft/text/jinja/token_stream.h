// TokenStream: tokens one after the other, with the questions that a parser asks.
#pragma once
#include "weft/base/excerpt.h"
#include "weft/text/jinja/lexer.h"

namespace weft::jinja {

class TokenStream {
 public:
  TokenStream(std::string_view text, std::string_view source)
      : source_(source), tokens_(tokenize_template(text, source)) {}

  const Token& peek() const { return tokens_[at_]; }
  Token next() { return at_ + 1 < tokens_.size() ? std::move(tokens_[at_++]) : tokens_[at_]; }
  int line() const { return peek().line; }

  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign) && peek().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && peek().text == name; }
  bool skip(TokenKind kind) { return skip_if(is(kind)); }
  bool skip_sign(std::string_view sign) { return skip_if(is_sign(sign)); }
  bool skip_name(std::string_view name) { return skip_if(is_name(name)); }
  // The token after the next; the end when there is none.
  const Token& peek_second() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

  std::string expect_name(std::string_view what) {
    if (!is(TokenKind::name)) fail_expected(what);
    return next().text;
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) fail_expected(fmt::format("'{}'", sign));
  }
  void expect_name_is(std::string_view name) {
    if (!skip_name(name)) fail_expected(fmt::format("'{}'", name));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!skip(kind)) fail_expected(what);
  }

  [[noreturn]] void fail(std::string_view what) const { throw Error("{}, line {}: {}", source_, line(), what); }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(fmt::format("{} was expected, but there is {}", what, describe(peek())));
  }

 private:
  bool skip_if(bool condition) {
    if (condition) next();
    return condition;
  }
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::data: return "text";
      case TokenKind::block_begin: return "{%";
      case TokenKind::block_end: return "%}";
      case TokenKind::print_begin: return "{{";
      case TokenKind::print_end: return "}}";
      case TokenKind::literal: return excerpt(repr(token.value), 60);
      case TokenKind::end: return "the end of the template";
      default: return fmt::format("'{}'", excerpt(token.text, 60));
    }
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Counts a level of nesting while it lives: a template cannot exhaust the stack of its parser.
class ParserLevel {
 public:
  ParserLevel(int& level, const TokenStream& tokens) : level_(level) {
    constexpr int kMaxLevel = 200;
    if (++level_ <= kMaxLevel) return;
    --level_;
    tokens.fail(fmt::format("it is nested deeper than {} levels", kMaxLevel));
  }
  ~ParserLevel() { --level_; }
  ParserLevel(const ParserLevel&) = delete;
  ParserLevel& operator=(const ParserLevel&) = delete;

 private:
  int& level_;
};

}  // namespace weft::jinja
