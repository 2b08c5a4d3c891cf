# The official client of OpenAI's API against servers whose models say a fixed text, the second behind thoughts; see tests/serve/openai_client_test.cpp.
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
messages = [{"role": "user", "content": "Hi"}]
says = "Hello, world."

reply = client.chat.completions.create(model="test-model", messages=messages, logprobs=True, top_logprobs=2)
assert reply.choices[0].message.content == says, reply
assert reply.choices[0].finish_reason == "stop"
assert reply.choices[0].logprobs.content[0].token == "H"
assert reply.usage.completion_tokens == 14

text, usage = "", None
for chunk in client.chat.completions.create(
    model="test-model", messages=messages, stream=True, stream_options={"include_usage": True}
):
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
    usage = chunk.usage or usage
assert text == says and usage.completion_tokens == 14, (text, usage)

tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
assert client.chat.completions.create(model="test-model", messages=messages, tools=tools).choices[0].message.content == says

reply = client.completions.create(model="test-model", prompt=["a", "b"], max_tokens=5, logprobs=1, echo=True)
assert [choice.text for choice in reply.choices] == ["aHello", "bHello"], reply
assert reply.choices[0].logprobs.tokens[0] == "a"

assert client.embeddings.create(model="test-model", input=["abc"]).data[0].embedding == [3.0, 0.5]
assert client.models.list().data[0].id == "test-model"
assert client.models.retrieve("test-model").id == "test-model"

reply = client.responses.create(model="test-model", input="Hi")
assert reply.output_text == says and reply.status == "completed", reply
with client.responses.stream(model="test-model", input="Hi") as stream:
    for _ in stream:
        pass
    assert stream.get_final_response().output_text == says

thinking = openai.OpenAI(base_url=sys.argv[2], api_key="any", max_retries=0)
reply = thinking.chat.completions.create(model="test-model", messages=messages)
assert reply.choices[0].message.reasoning_content == "Hm." and reply.choices[0].message.content == says, reply
assert reply.usage.completion_tokens_details.reasoning_tokens > 0, reply
reply = thinking.responses.create(model="test-model", input="Hi")
assert [item.type for item in reply.output] == ["reasoning", "message"] and reply.output_text == says, reply
assert reply.output[0].content[0].text == "Hm.", reply
with thinking.responses.stream(model="test-model", input="Hi") as stream:
    thought = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
    assert thought == "Hm.", thought
    assert stream.get_final_response().output_text == says
again = thinking.responses.create(model="test-model", input=[{"role": "user", "content": "Hi"}, *reply.output])
assert again.output_text == says

for call, error in [
    (lambda: client.chat.completions.create(model="other", messages=messages), openai.NotFoundError),
    (lambda: client.chat.completions.create(model="test-model", messages=messages, temperature=-1), openai.BadRequestError),
    (lambda: client.completions.create(model="test-model", prompt="x" * 5000), openai.BadRequestError),
]:
    try:
        call()
        raise AssertionError(f"no {error.__name__}")
    except error as e:
        assert e.body["message"], e.body
print("the official client is content")
