// Pairs as tokens: documents two by two.
#include "weft/data/pair_tokens.h"

#include <nlohmann/json.hpp>

#include "weft/data/instruct_tokens.h"
#include "weft/data/pair_example.h"

namespace weft {
namespace {

// Calls visit(json, place), and names the place in what it throws.
void for_each_in(FileSystem& fs, const TextFiles& sources,
                 FunctionRef<void(const nlohmann::json&, const std::string&)> visit,
                 FunctionRef<void(int64_t)> read) {
  for (const TextFile& source : sources.files) for_each_json(fs, source.path, visit, read);
}

void named(const std::string& place, FunctionRef<void()> write) {
  try {
    write();
  } catch (const Error& error) {
    throw Error("{}: {}", place, error.what());
  }
}

}  // namespace

void write_pairs(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                 PairTargets targets, TokenFileWriter& writer, FunctionRef<void(int64_t)> read) {
  for_each_in(
      fs, sources,
      [&](const nlohmann::json& json, const std::string& place) {
        const PairExample pair = parse_pair(json, place);
        named(place, [&] {
          for (const InstructExample* example : {&pair.chosen, &pair.rejected})
            if (targets == PairTargets::answers)
              write_example(*example, chat, tokenizer, writer);
            else
              write_scored(*example, 0, chat, tokenizer, writer, true);
        });
      },
      read);
}

void write_labelled(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                    TokenFileWriter& writer, FunctionRef<void(int64_t)> read) {
  struct Found {
    LabelledExample labelled;
    std::string place;
  };
  std::vector<Found> all;
  for_each_in(
      fs, sources,
      [&](const nlohmann::json& json, const std::string& place) {
        all.push_back({parse_labelled(json, place), place});
      },
      read);
  if (all.size() == 1) throw Error("{}: KTO compares answers with others, and there is only one", all[0].place);
  for (size_t i = 0; i < all.size(); ++i)
    named(all[i].place, [&] {
      const InstructExample& example = all[i].labelled.example;
      const InstructExample& other = all[(i + all.size() - 1) % all.size()].labelled.example;
      write_example(example, chat, tokenizer, writer);
      write_example(with_answer_of(example, other), chat, tokenizer, writer,
                    all[i].labelled.is_desirable ? FirstToken::learned : FirstToken::not_learned);
    });
}

void write_classes(FileSystem& fs, const TextFiles& sources, const ChatFormat& chat, const Tokenizer& tokenizer,
                   int64_t num_labels, TokenFileWriter& writer, FunctionRef<void(int64_t)> read) {
  for_each_in(
      fs, sources,
      [&](const nlohmann::json& json, const std::string& place) {
        const ClassExample one = parse_class(json, num_labels, place);
        named(place, [&] { write_scored(one.example, one.label, chat, tokenizer, writer, false); });
      },
      read);
}

}  // namespace weft
