// ScheduleRun: a schedule's actions and messages played through on paper, with buffered sends or by rendezvous.
#pragma once
#include <string>
#include <vector>

#include "weft/parallel/pipeline/check_schedule.h"

namespace weft {

// What the stage before or after sends; a message is known by the action that takes it.
struct Message {
  int from = 0, to = 0;
  Action sent_by, taken_by;
};
// What `action` waits for from another rank, or sends to one once it is done.
std::optional<Message> message_before(const Schedule& schedule, const Action& action);
std::optional<Message> message_after(const Schedule& schedule, const Action& action);
std::string describe(const Message& message);  // "the gradient for stage 1 micro-batch 0"

enum class SendMode : uint8_t { buffered, rendezvous };

struct ScheduleRun {
  std::vector<std::vector<TimedAction>> ranks;  // as far as they came
  std::string deadlock;                         // who waits for whom; empty: all came to the end
};
// Needs stages and micro-batches in range, each action on its rank. The times are those of buffered sends.
ScheduleRun run_on_paper(const Schedule& schedule, const ActionCosts& costs, SendMode mode);

}  // namespace weft
