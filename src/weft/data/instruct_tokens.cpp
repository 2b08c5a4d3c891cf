// write_examples: part by part, so that an answer's tokens are those that follow its prompt in generation.
#include "weft/data/instruct_tokens.h"

namespace weft {
namespace {

// Its tokens part by part. ends: whether a text of our own form has a token behind it that says so.
void visit_tokens(const InstructExample& example, const ChatFormat& chat, const Tokenizer& tokenizer, bool ends,
                  FunctionRef<void(std::span<const int32_t> ids, bool is_answer)> visit) {
  const bool is_ours = chat.needs_end_token(example);  // a template writes control tokens itself
  if (is_ours) visit(tokenizer.before_text(), false);
  std::vector<int32_t> ids;
  bool continues = false, is_answer = false;
  for (const ChatPart& part : chat.render(example)) {
    ids.clear();
    tokenizer.encode(part.text, {.parse_special = !is_ours, .continues = continues}, ids);
    visit(ids, is_answer = part.is_answer);
    continues = true;
  }
  if (const auto end = tokenizer.end_of_document(); end && is_ours && ends) visit({&*end, 1}, is_answer);
}

}  // namespace

void write_example(const InstructExample& example, const ChatFormat& chat, const Tokenizer& tokenizer,
                   TokenFileWriter& writer, FirstToken first) {
  const auto append = [&](std::span<const int32_t> ids, bool is_learned) {
    if (first != FirstToken::as_the_rest && !ids.empty()) {
      writer.append(ids.first(1), first == FirstToken::learned);
      ids = ids.subspan(1), first = FirstToken::as_the_rest;
    }
    writer.append(ids, is_learned);
  };
  writer.begin_document();
  visit_tokens(example, chat, tokenizer, true, append);
}

void write_scored(const InstructExample& example, int32_t label, const ChatFormat& chat, const Tokenizer& tokenizer,
                  TokenFileWriter& writer, bool ends) {
  writer.begin_document();
  visit_tokens(example, chat, tokenizer, ends,
               [&](std::span<const int32_t> ids, bool) { writer.append(ids, false); });
  writer.append({&label, 1}, true);
}

void write_examples(FileSystem& fs, const TextFiles& sources, InstructFormat format, const ChatFormat& chat,
                    const Tokenizer& tokenizer, TokenFileWriter& writer, FunctionRef<void(int64_t)> read) {
  for (const TextFile& source : sources.files)
    for_each_example(
        fs, source.path, format,
        [&](const InstructExample& example, const std::string& place) {
          try {
            write_example(example, chat, tokenizer, writer);
          } catch (const Error& error) {
            throw Error("{}: {}", place, error.what());
          }
        },
        read);
}

}  // namespace weft
