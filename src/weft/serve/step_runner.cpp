// StepRunner: a message of i32 numbers over the world, then the same forward pass on every rank.
#include "weft/serve/step_runner.h"

#include <algorithm>
#include <cstring>

#include "weft/autograd/floats_on_host.h"
#include "weft/base/ceil_div.h"

namespace weft {

int64_t cache_bytes_of_token(const ModelConfig& c, const MeshShape& mesh, const RowFormat& format) {
  if (c.num_attending() == 0)
    throw UsageError(
        "model.attention_every = {}: none of the model's {} layers attends, so that a cache of keys and values "
        "for it has no size: use weft generate",
        c.attention_every, c.layers);
  const auto bytes_of = [&](const ModelConfig& of, int64_t layer) {
    if (of.is_latent()) {  // of all heads, on every rank
      const int64_t index = of.has_index(layer) ? format.bytes(of.index_head_dim) : 0;
      return mesh.tp * (format.bytes(of.kv_rank + of.rotary_dim) + index);
    }
    const int64_t dim = of.head_dim_of(layer), value_dim = of.values_dim(layer), heads = of.kv_heads_of(layer);
    // Of fewer heads than ranks every rank has one.
    return round_up(heads, int64_t(mesh.tp)) * (format.bytes(dim) + format.bytes(value_dim));
  };
  int64_t sum = c.mtp_layers * bytes_of(c.mtp_block(), c.layers);
  for (int64_t i = 0; i < c.layers; ++i)
    if (c.attends(i) && !c.shares_keys(i)) sum += bytes_of(c, i);
  return sum * mesh.dp();
}

int64_t state_bytes_of_sequence(const ModelConfig& c, const MeshShape& mesh, DType dtype) {
  if (!c.has_states()) return 0;
  const int64_t conv_rows = (c.state_conv - 1) * int64_t(size_of(dtype)) * mesh.dp() * c.num_recurrent();
  if (c.state_rule == StateKind::convolution) return conv_rows * round_up(c.hidden, int64_t(mesh.tp));
  const int64_t keys = round_up(c.state_key_heads, int64_t(mesh.tp)) * c.state_key_dim;
  const int64_t values = round_up(c.state_heads, int64_t(mesh.tp)) * c.state_value_dim;
  const int64_t matrices = values * c.state_key_dim * int64_t(size_of(Context::wide(dtype)));
  return conv_rows * (2 * keys + values) + c.num_recurrent() * matrices * mesh.dp();
}

int64_t most_states_of_each(int64_t draft_tokens, bool keeps_prefixes) {
  return 1 + draft_tokens + (keeps_prefixes ? 4 : 0);
}

// A kept one, at least, to each that runs.
StateShares share_states(int64_t state_bytes, int64_t cache_bytes, int64_t most, int64_t draft_tokens,
                         bool keeps_prefixes) {
  if (state_bytes == 0) return {.running = most};
  const int64_t fit = cache_bytes / 2 / state_bytes, of_each = 1 + draft_tokens + (keeps_prefixes ? 1 : 0);
  const int64_t running = std::clamp<int64_t>(fit / of_each, 1, most);
  const int64_t most_kept = running * (most_states_of_each(draft_tokens, keeps_prefixes) - 1);
  return {.running = running, .kept = std::clamp<int64_t>(fit - running, 0, most_kept)};
}

StepRunner::StepRunner(ForwardModel& model, int64_t num_blocks, int64_t block_tokens, const RowFormat& format,
                       int64_t num_states, AdapterLoader adapters)
    : model_(model),
      world_(model.mesh().world()),
      cache_(model.context(), int(model.config().layers + model.config().mtp_layers), num_blocks,
             ceil_div(block_tokens, model.mesh().shape().cp), format, num_states),
      adapters_(std::move(adapters)) {
  if (model.config().bidirectional)
    throw UsageError(
        "a model that reads texts in both directions keeps no keys and values of them: weft serve makes "
        "vectors of texts with it");
  const MeshShape& shape = model.mesh().shape();
  if (shape.cp > 1 && shape.ep > 1)
    throw UsageError("--mesh cp={},ep={}: served models are cut by one of the two: leave ep or cp out", shape.cp,
                     shape.ep);
  if (shape.dp() != shape.ep)
    throw UsageError("--mesh dp={}: each replica has an engine of its own, as weft serve gives it: leave dp out",
                     shape.dp());
  if (shape.cp > 1 && model.config().has_states())
    throw UsageError(
        "--mesh cp={}: layers with states hand them from token to token, which must lie on one rank: "
        "leave cp out",
        shape.cp);
  if (shape.cp > 1 && model.config().selects_keys())
    throw UsageError("--mesh cp={}: rows select their keys among those of one rank (model.index_heads): leave cp out",
                     shape.cp);
  if (shape.cp > 1 && model.config().mtp_layers > 0)
    throw UsageError("--mesh cp={}: the model's own part that drafts reads rows that lie on one rank: leave cp out",
                     shape.cp);
  const ModelConfig& config = model.config();
  if (config.chunked_window && config.window % block_tokens != 0)
    throw UsageError("--block-tokens {}: some layers attend in chunks of {} tokens: write a divisor of that",
                     block_tokens, config.window);
  if (block_tokens % shape.cp != 0)
    throw UsageError("--block-tokens {}: each block is spread over the {} ranks of cp: write a multiple of that",
                     block_tokens, shape.cp);
  model.part().reserve_positions(model.context(), num_blocks * block_tokens);
  if (shape.cp > 1)
    spread_.emplace(SpreadPlan{model.mesh().cp(), {}, std::vector<std::vector<int32_t>>(size_t(shape.cp))});
  reserve(kFirstWords);
  blocks_.reserve(size_t(num_blocks));  // more are told only where many share some
}

void StepRunner::clear() {
  ids_.clear(), wanted_.clear(), blocks_.clear(), sequences_.clear(), runs_.clear(), from_.clear(), folder_.clear();
}

void StepRunner::add(std::span<const int32_t> tokens, std::span<const int32_t> draft_tokens, int64_t first,
                     std::span<const int32_t> blocks, int64_t num_wanted, int32_t adapter,
                     std::span<const TokenRun> runs, int32_t found) {
  const auto begin = int64_t(ids_.size()), count = int64_t(tokens.size() + draft_tokens.size()), end = begin + count,
             keys = first + count;
  sequences_.push_back({int32_t(begin), int32_t(end), int32_t(keys), int32_t(blocks_.size()), adapter});
  if (!model_.config().has_states()) runs = {};
  for (const TokenRun& run : runs)
    runs_.push_back({int32_t(begin) + run.begin, int32_t(begin) + run.end, run.from, run.to});
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  if (found >= 0) ids_.back() = -1 - found;
  ids_.insert(ids_.end(), draft_tokens.begin(), draft_tokens.end());
  for (int64_t row = end - num_wanted; row < end; ++row) wanted_.push_back(int32_t(row));
  const auto held = blocks.first(size_t(ceil_div(keys, block_tokens())));
  blocks_.insert(blocks_.end(), held.begin(), held.end());
}

Tensor StepRunner::run(const Tensor& found) {
  send(Order::step);
  return compute(Order::step, found);
}

Tensor StepRunner::predict(std::span<const int32_t> from, const Tensor& found) {
  from_.assign(from.begin(), from.end());
  send(Order::predict);
  return compute(Order::predict, found);
}

void StepRunner::hidden(int64_t first, int64_t count, std::vector<float>& states) const {
  Context& context = model_.context();
  const Tensor floats = floats_on_host(context, model_.chosen_hidden().slice_rows(first, count));
  states.assign(floats.data<float>(), floats.data<float>() + floats.numel());
}

void StepRunner::stop() {
  clear();
  send(Order::stop);
}

std::string StepRunner::load_adapter(int32_t id, const std::string& folder) {
  clear();
  wanted_ = {id};
  folder_.resize((folder.size() + sizeof(int32_t)) / sizeof(int32_t));  // with a zero behind it
  std::memcpy(folder_.data(), folder.c_str(), folder.size() + 1);
  send(Order::load);
  return load_adapter_here(id, folder);
}

void StepRunner::drop_adapter(int32_t id) {
  clear();
  wanted_ = {id};
  send(Order::drop);
  adapters_.drop(id);
}

void StepRunner::follow() {
  for (;;) {
    switch (const Order order = receive()) {
      case Order::step:
      case Order::predict: compute(order); break;
      case Order::load: load_adapter_here(wanted_.front(), reinterpret_cast<const char*>(folder_.data())); break;
      case Order::drop: adapters_.drop(wanted_.front()); break;
      case Order::stop: return;
    }
  }
}

void StepRunner::reserve(int64_t words) {
  if (message_ && message_.numel() >= words) return;
  const Tensor old = std::exchange(
      message_, model_.context().stream.host_memory().empty(DType::i32, {std::max(words, 2 * kFirstWords)}));
  if (old) std::memcpy(message_.raw(), old.raw(), old.bytes());
}

void StepRunner::broadcast(int64_t begin, int64_t end) {
  world_.broadcast(message_.slice_flat(begin, {end - begin}), model_.driver());
}

void StepRunner::send(Order order) {
  if (world_.size() == 1) return;
  const auto bytes_of = [](const auto& v) { return std::as_bytes(std::span(v)); };
  const std::array parts{bytes_of(ids_),  bytes_of(wanted_), bytes_of(sequences_), bytes_of(blocks_),
                         bytes_of(runs_), bytes_of(from_),   bytes_of(folder_)};
  constexpr size_t kWord = sizeof(int32_t);
  size_t bytes = sizeof(Head);
  for (const auto& part : parts) bytes += part.size();
  const auto words = int64_t(bytes / kWord);
  reserve(words);
  const auto size_in = [](const auto& v) { return int32_t(v.size()); };
  const Head head{int32_t(words),   order,          size_in(ids_),  size_in(wanted_), size_in(sequences_),
                  size_in(blocks_), size_in(runs_), size_in(from_), size_in(folder_)};
  auto* to = static_cast<std::byte*>(message_.raw());
  const auto put = [&](const void* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  put(&head, sizeof(head));
  for (const auto& part : parts) put(part.data(), part.size());
  broadcast(0, kFirstWords);
  if (words > kFirstWords) broadcast(kFirstWords, words);
}

StepRunner::Order StepRunner::receive() {
  {
    const Patience while_nothing_is_asked(world_);
    broadcast(0, kFirstWords);
  }
  Head head{};
  std::memcpy(&head, message_.raw(), sizeof(head));
  if (head.words > kFirstWords) {
    reserve(head.words);
    broadcast(kFirstWords, head.words);
  }
  ids_.resize(size_t(head.tokens)), wanted_.resize(size_t(head.wanted));
  sequences_.resize(size_t(head.sequences)), blocks_.resize(size_t(head.blocks));
  runs_.resize(size_t(head.runs)), from_.resize(size_t(head.from)), folder_.resize(size_t(head.folder));
  const auto* from = static_cast<const std::byte*>(message_.raw()) + sizeof(Head);
  const auto get = [&](auto& to) {
    const std::span bytes = std::as_writable_bytes(std::span(to));
    if (!bytes.empty()) std::memcpy(bytes.data(), from, bytes.size());
    from += bytes.size();
  };
  get(ids_), get(wanted_), get(sequences_), get(blocks_), get(runs_), get(from_), get(folder_);
  return head.order;
}

// The place of an adapter among those of the step, or -1 for the model itself.
int32_t StepRunner::set_of(int32_t adapter) {
  const LoraSet* const set = adapters_.find(adapter);
  if (!set) return -1;
  const auto found = std::ranges::find(sets_, set);
  if (found == sets_.end()) return sets_.push_back(set), int32_t(sets_.size()) - 1;
  return int32_t(found - sets_.begin());
}

// Of the step's rows each rank along cp computes an even part; the last ones may get rows that are of no sequence.
Tensor StepRunner::compute(Order order, const Tensor& found) {
  const Mesh& mesh = model_.mesh();
  const int64_t cp = mesh.shape().cp, rows_here = ceil_div(int64_t(ids_.size()), cp);
  const int64_t first = rows_here * mesh.place().cp;
  ids_.resize(size_t(rows_here * cp), 0);
  positions_.assign(ids_.size(), 0), places_.assign(ids_.size(), kElsewhere);
  paged_.clear(), adapted_.clear(), sets_.clear();
  for (const Rows& rows : sequences_) {
    const int32_t set = set_of(rows.adapter);
    const int32_t* const blocks = blocks_.data() + rows.first_block;
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      positions_[size_t(row)] = rows.num_keys - (rows.end - row);
      places_[size_t(row)] = place_of(blocks, positions_[size_t(row)]);
    }
    const auto begin = int32_t(std::max<int64_t>(rows.begin - first, 0));
    const auto end = int32_t(std::min<int64_t>(rows.end - first, rows_here));
    if (begin >= end) continue;
    const auto keys = int32_t(rows.num_keys - (rows.end - first - end));
    paged_.push_back({.q_begin = begin, .q_end = end, .num_keys = keys, .blocks = blocks});
    if (set < 0) continue;
    const auto ends_here = [&](const RowAdapters::Run& r) { return r.set == set && r.begin + r.count == begin; };
    if (adapted_.empty() || !ends_here(adapted_.back())) adapted_.push_back({set, begin, 0});
    adapted_.back().count = end - adapted_.back().begin;
  }
  if (spread_) plan_blocks(rows_here);
  const PagedPlan plan{.cache = &cache_,
                       .sequences = paged_.data(),
                       .num_sequences = int(paged_.size()),
                       .rows = places_.data(),
                       .spread = spread_ ? &*spread_ : nullptr};
  const RowAdapters adapted{adapted_, sets_};
  const bool predicts = order == Order::predict;
  const int64_t num_found = -std::min(0, std::ranges::min(ids_));
  const int64_t turn = turns_.next(num_found > 0), alike = likeness();
  const void* const kind = predicts ? static_cast<const void*>(&from_) : this;
  const RepeatedStep step(model_.context().stream, kind, alike * StepTurns::kCount + (alike > 0 ? turn : 0));
  const Tensor ids = num_found > 0 ? place_found(num_found, found) : Tensor();
  const Pass pass{.ids = (ids ? static_cast<const int32_t*>(ids.raw()) : ids_.data()) + first,
                  .ids_are_there = bool(ids),
                  .num_tokens = rows_here,
                  .attention = {.positions = positions_.data() + first, .paged = &plan},
                  .runs = {runs_.data(), int(runs_.size())},
                  .lora = adapters_.takes_any() ? &adapted : nullptr};
  return predicts ? model_.predict(pass, from_, wanted_) : model_.logits(pass, wanted_);
}

// The step's ids where tensors lie, with what the driver found before.
Tensor StepRunner::place_found(int64_t count, const Tensor& found) {
  Context& context = model_.context();
  const Tensor here =
      is_driver() ? found.slice_rows(0, count) : context.empty(DType::u8, {count, int64_t(sizeof(FoundTokens))});
  if (world_.size() > 1) world_.broadcast(here, model_.driver());
  const Tensor ids = context.empty(DType::i32, {int64_t(ids_.size())});
  context.kernels.place_tokens(context.stream, ids, ids_.data(), here);
  return ids;
}

// Steps in which all sequences have as many rows, one or a few, are alike where as many have them. 0: like no other.
int64_t StepRunner::likeness() const {
  constexpr size_t kFewRows = 16;  // of a step with several rows of each, or there would be too many kinds of steps
  if (sequences_.empty() || !sets_.empty()) return 0;
  const int32_t each = sequences_.front().end - sequences_.front().begin;
  const bool is_even =
      std::ranges::all_of(sequences_, [each](const Rows& rows) { return rows.end - rows.begin == each; });
  if (!is_even || (each > 1 && ids_.size() > kFewRows)) return 0;
  return (int64_t(each - 1) << 32) + int64_t(ids_.size());
}

// Where the key of a position goes in this rank's cache.
int32_t StepRunner::place_of(const int32_t* blocks, int32_t position) const {
  const auto tokens_here = int32_t(cache_.block_tokens()), of_block = int32_t(block_tokens());
  const int32_t in_block = position % of_block;
  if (in_block / tokens_here != model_.mesh().place().cp) return kElsewhere;
  return blocks[position / of_block] * tokens_here + in_block % tokens_here;
}

// Which blocks the rows of each rank need; this rank's sequences then name theirs by their place among them.
void StepRunner::plan_blocks(int64_t rows_here) {
  spread_->places.assign(places_.begin(), places_.end());
  needed_blocks_.clear();
  needed_at_.resize(size_t(cache_.num_blocks()), kElsewhere);
  std::vector<size_t> begins;
  const int here = model_.mesh().place().cp;
  for (int r = 0; r < model_.mesh().shape().cp; ++r) {
    std::vector<int32_t>& needed = spread_->needed[size_t(r)];
    needed.clear();
    for (const Rows& rows : sequences_) {
      const int64_t end = std::min<int64_t>(rows.end, rows_here * (r + 1));
      if (std::max<int64_t>(rows.begin, rows_here * r) >= end) continue;
      if (r == here) begins.push_back(needed_blocks_.size());
      const int64_t count = ceil_div(rows.num_keys - (rows.end - end), block_tokens());
      for (int64_t i = 0; i < count; ++i) {
        const int32_t block = blocks_[size_t(rows.first_block + i)];
        int32_t& at = needed_at_[size_t(block)];
        if (at == kElsewhere) at = int32_t(needed.size()), needed.push_back(block);
        if (r == here) needed_blocks_.push_back(at);
      }
    }
    for (const int32_t block : needed) needed_at_[size_t(block)] = kElsewhere;
  }
  for (size_t i = 0; i < paged_.size(); ++i) paged_[i].blocks = needed_blocks_.data() + begins[i];
}

}  // namespace weft
