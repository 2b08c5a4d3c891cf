"""A step of GRPO with TRL, and what its loss says of weft's own answers.

  grpo_step.py model DIR TOKENIZER  a random Llama of 49 million parameters with the vocabulary of a tokenizer.json
                                    (GPT-2's), and questions for it
  grpo_step.py steps DIR [COUNT]    seconds of TRL's steps: 64 answers of 128 tokens to 8 questions
  grpo_step.py check DIR RUN        TRL's loss of the answers in RUN/answers.jsonl (a first step of weft's with
                                    rl.log_answers = 64): the norm of its gradient beside RUN/metrics.jsonl's
"""
import json
import math
import random
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback


def make_model(folder, tokenizer_json):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=tokenizer_json, eos_token="<|endoftext|>",
                                        bos_token="<|endoftext|>", pad_token="<|endoftext|>")
    torch.manual_seed(0)
    end = tokenizer.eos_token_id
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=512, num_hidden_layers=8, num_attention_heads=8,
                         num_key_value_heads=4, intermediate_size=1408, max_position_embeddings=1024,
                         tie_word_embeddings=True, bos_token_id=end, eos_token_id=end)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    random.seed(1)
    with open(folder + "/questions.jsonl", "w") as out:
        for _ in range(256):
            a, b = random.randint(10, 99), random.randint(10, 99)
            prompt = (f"Question: a farmer has {a} sheep and buys {b} more at the market on Monday morning. How many "
                      "sheep does the farmer have now? Think step by step.\nAnswer:")
            out.write(json.dumps({"prompt": prompt, "answer": str(a + b)}) + "\n")


def trainer_for(folder, steps, rows, callbacks=()):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    questions = [json.loads(line) for line in open(folder + "/questions.jsonl")]
    config = GRPOConfig(output_dir=folder + "/trl", use_cpu=True, bf16=False, fp16=False,
                        per_device_train_batch_size=rows, gradient_accumulation_steps=64 // rows, num_generations=8,
                        max_completion_length=128, temperature=1.0, top_p=1.0, top_k=0, beta=0.0, num_iterations=1,
                        learning_rate=1e-6, max_steps=steps, save_strategy="no", report_to=[],
                        gradient_checkpointing=False, loss_type="grpo", scale_rewards=True)
    return GRPOTrainer(model=folder, reward_funcs=lambda completions, **_: [float(len(c) % 7) for c in completions],
                       args=config, train_dataset=Dataset.from_list(questions), callbacks=list(callbacks))


class Clock(TrainerCallback):
    def on_step_begin(self, *_, **__):
        self.begin = time.time()

    def on_step_end(self, args, state, control, **_):
        print(json.dumps({"peer": "trl", "step": state.global_step, "step_s": round(time.time() - self.begin, 2)}),
              flush=True)


def check(folder, run):
    rows = [json.loads(line) for line in open(run + "/answers.jsonl")][:64]
    wanted = json.loads(open(run + "/metrics.jsonl").readline())["grad_norm"]
    trainer = trainer_for(folder, 1, 64)
    model, tokenizer = trainer.model, trainer.processing_class
    rewards = torch.tensor([float(r["reward"]) for r in rows]).view(-1, 8)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten()
    prompts, answers = [tokenizer(r["prompt"])["input_ids"] for r in rows], [r["tokens"] for r in rows]
    longest, most, pad = max(map(len, prompts)), max(map(len, answers)), tokenizer.pad_token_id
    inputs = {
        "prompt_ids": torch.tensor([[pad] * (longest - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([a + [pad] * (most - len(a)) for a in answers]),
        "completion_mask": torch.tensor([[1] * len(a) + [0] * (most - len(a)) for a in answers]),
        "advantages": advantages,
    }
    model.train()
    trainer.current_gradient_accumulation_steps = 4
    for begin in range(0, 64, 16):
        part = {key: value[begin:begin + 16] for key, value in inputs.items()}
        part["num_items_in_batch"] = inputs["completion_mask"].sum()
        trainer._compute_loss(model, part).backward()
    norm = math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in model.parameters()))
    print(json.dumps({"trl_grad_norm": norm, "weft_grad_norm": wanted, "ratio": norm / wanted}))


if __name__ == "__main__":
    torch.set_num_threads(2)
    command, folder = sys.argv[1], sys.argv[2]
    if command == "model":
        make_model(folder, sys.argv[3])
    elif command == "steps":
        trainer_for(folder, int(sys.argv[3]) if len(sys.argv) > 3 else 3, 16, [Clock()]).train()
    else:
        check(folder, sys.argv[3])
