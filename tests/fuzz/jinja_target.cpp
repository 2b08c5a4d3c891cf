// Templates from outside, rendered with a conversation and with tools.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/text/chat_template.h"

namespace weft {
namespace {

using jinja::Value;

std::vector<std::pair<std::string, Value>> variables() {
  const auto message = [](std::string role, std::string content) {
    return Value::dict({{"role", std::move(role)}, {"content", std::move(content)}});
  };
  const Value call = Value::dict({{"name", "now"}, {"arguments", Value::dict({{"zone", "CET"}, {"n", 1.5}})}});
  const Value answer = Value::dict({{"role", "assistant"},
                                    {"content", nullptr},
                                    {"tool_calls", Value::list({Value::dict({{"function", call}})})}});
  return {{"messages", Value::list({message("system", " Be brief.\n"), message("user", "Wörld?"), answer,
                                    message("tool", "12:00"), message("assistant", "<think>a</think>b")})},
          {"tools", Value::list({Value::dict({{"type", "function"}, {"function", call}})})},
          {"bos_token", "<s>"},
          {"eos_token", "</s>"},
          {"add_generation_prompt", true}};
}

}  // namespace

void fuzz_jinja(Bytes input) {
  // Small limits find the same mistakes in less time.
  constexpr jinja::Limits kLimits{.max_steps = 20'000, .max_text_bytes = 1 << 16, .max_range = 1 << 10};
  static const auto kVariables = variables();
  expect_errors_only([&] {
    const jinja::Template parsed(text_of(input), "fuzz");
    const jinja::Rendered rendered = parsed.render(kVariables, kLimits);
    if (rendered.text.size() > kLimits.max_text_bytes) std::abort();
    for (const jinja::TextSpan& span : rendered.generations) {
      if (span.begin > span.end || span.end > rendered.text.size()) std::abort();
    }
  });
}

}  // namespace weft
