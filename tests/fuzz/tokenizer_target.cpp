// A tokenizer.json from outside, Hugging Face's or weft's own, used in all that a tokenizer does.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/text/tokenizer.h"

namespace weft {
namespace {

// Words, spaces of all kinds, digits, marks that combine, bytes that are not UTF-8, and spellings of control tokens.
constexpr std::string_view kTexts[] = {
    "",
    "The quick brown fox isn't lazy.",
    "  a\t\n\n b \xC2\xA0\xE3\x80\x80 c  ",
    "12345 3.14 x=y**2; // ((\xC2\xBD))",
    "Z\xCC\xA7\xCC\x81rich \xC7\x85 \xEF\xAC\x81 \xE4\xBD\xA0\xE5\xA5\xBD "
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB",
    "\xFF\xC0\x80 \xED\xA0\x80 \xF4\x90\x80\x80 a\x01\x7F",
    "<s>[CLS] <|endoftext|><unk>\xE2\x96\x81the</s>",
};

void use(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  expect_errors_only([&] {
    const std::vector<int32_t> ids = tokenizer.encode(text, options);
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
    tokenizer.decode(ids, true);
    StreamDecoder stream(tokenizer);
    for (const int32_t id : ids) stream.push(id);
    stream.finish();
  });
}

}  // namespace

void fuzz_tokenizer(Bytes input) {
  expect_errors_only([&] {
    const auto tokenizer = parse_tokenizer(text_of(input), "tokenizer.json");
    for (const std::string_view text : kTexts) {
      expect_errors_only([&] {
        if (tokenizer->cut(text) > text.size()) std::abort();
      });
      use(*tokenizer, text, {});
      use(*tokenizer, text, {.add_special = true, .parse_special = true});
      use(*tokenizer, text, {.parse_special = true, .continues = true});
    }
    for (int32_t id = -1; id <= std::min(tokenizer->vocab_size(), 300); ++id) {
      expect_errors_only([&] {
        const std::string spelling = tokenizer->spelling(id);
        tokenizer->decode({&id, 1}, tokenizer->is_special(id));
        tokenizer->find(spelling);
      });
    }
    if (parse_tokenizer(tokenizer->to_json(), "tokenizer.json")->fingerprint() != tokenizer->fingerprint())
      std::abort();
  });
}

}  // namespace weft
