// A form that a request asks its answer to have: compiled, and followed by a text that the form itself allows.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/constrain/matcher.h"

namespace weft {
namespace {

using constrain::Matcher;
using Kind = api::OutputForm::Kind;

// The first line says which kind of form the rest is.
api::OutputForm form_of(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view kind = text.substr(0, end), rest = text.substr(std::min(end + 1, text.size()));
  if (kind == "schema") return {.kind = Kind::json_schema, .text = std::string(rest)};
  if (kind == "regex") return {.kind = Kind::regex, .text = std::string(rest)};
  if (kind == "tool") return {.kind = Kind::tool_calls, .choices = {"f"}, .schemas = {std::string(rest)}};
  return {.kind = Kind::grammar, .text = std::string(rest)};
}

// Takes the first byte that may come behind the last one. A byte that may come leaves a way on, and what is released
// is as if it had never been.
void follow(Matcher& matcher, Bytes input) {
  constexpr int kMostBytes = 48;
  Matcher::State state = matcher.start(), next;
  uint8_t wanted = 0;
  for (int i = 0; i < kMostBytes; ++i) {
    wanted = uint8_t(wanted * 5 + uint8_t(input[size_t(i) % input.size()]));
    bool goes_on = false;
    for (int k = 0; k < 256 && !goes_on; ++k) {
      const size_t mark = matcher.mark();
      goes_on = matcher.step(state, uint8_t(wanted + k), next);
      if (!goes_on) matcher.release(mark);
      if (goes_on && next.empty()) std::abort();
    }
    if (!goes_on) return;
    std::swap(state, next);
  }
}

}  // namespace

void fuzz_form(Bytes input) {
  if (input.empty()) return;
  expect_errors_only([&] {
    const constrain::Grammar grammar = constrain::grammar_of(form_of(text_of(input)));
    Matcher matcher(grammar);
    follow(matcher, input);
  });
}

}  // namespace weft
