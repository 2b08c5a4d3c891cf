// MetricsFile: numbers as JSON.
#include "weft/train/metrics.h"

#include <cmath>
#include <iterator>
#include <string_view>

namespace weft {
namespace {

void add_number(fmt::memory_buffer& line, std::string_view key, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{}", key, value);
  } else {
    fmt::format_to(std::back_inserter(line), ",\"{}\":null", key);
  }
}

}  // namespace

void MetricsFile::end_line() {
  line_.push_back('}');
  lines_.write({line_.data(), line_.size()});
}

void MetricsFile::write(const StepMetrics& m) {
  line_.clear();
  const auto out = std::back_inserter(line_);
  fmt::format_to(out, "{{\"step\":{}", m.step);
  add_number(line_, "loss", m.loss);
  if (m.mtp_loss) add_number(line_, "mtp_loss", *m.mtp_loss);
  if (m.expert_load) add_number(line_, "expert_load", *m.expert_load);
  if (m.expert_rank_load) add_number(line_, "expert_rank_load", *m.expert_rank_load);
  add_number(line_, "grad_norm", m.grad_norm);
  add_number(line_, "lr", m.lr);
  fmt::format_to(out, ",\"tokens\":{}", m.tokens);
  add_number(line_, "tokens_per_s", m.tokens_per_s);
  add_number(line_, "step_s", m.step_s);
  add_number(line_, "mfu", m.mfu);
  add_number(line_, "hfu", m.hfu);
  fmt::format_to(out, ",\"peak_bytes\":[{}]", fmt::join(m.peak_bytes, ","));
  add_number(line_, "comm_s", m.comm_s);
  add_number(line_, "bubble", m.bubble);
  if (m.policy)
    each_figure(*m.policy,
                [&](std::string_view tag, double value) { add_number(line_, tag.substr(tag.find('/') + 1), value); });
  end_line();
}

void MetricsFile::write_eval(int64_t step, const Validation& v) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{{\"step\":{}", step);
  if (!v.answers) {
    add_number(line_, "eval_loss", v.loss);
  } else {
    add_number(line_, "eval_reward", v.answers->reward);
    add_number(line_, "eval_answer_tokens", v.answers->tokens);
  }
  if (v.accuracy) add_number(line_, "eval_accuracy", *v.accuracy);
  if (v.preference) {
    add_number(line_, "eval_accuracy", v.preference->accuracy);
    add_number(line_, "eval_margin", v.preference->margin);
  }
  end_line();
}

void MetricsFile::write_checkpoint(int64_t step, double blocked_s, double seconds) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{{\"step\":{}", step);
  add_number(line_, "checkpoint_blocked_s", blocked_s);
  add_number(line_, "checkpoint_s", seconds);
  end_line();
}

}  // namespace weft
