"""Uses a front by the Python client. The argument is the port."""

import sys

import redis

client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
assert client.ping()
assert client.set("a", "1") and client.get("a") == "1"
assert client.set("a", "2", nx=True) is None
assert client.incrby("a", 41) == 42
assert client.mset({"k1": "1", "k2": "2", "k3": "3"})
assert client.mget("k1", "k2", "k3", "nothing") == ["1", "2", "3", None]
with client.pipeline(transaction=True) as pipeline:
    pipeline.incr("k1").incr("k2").lpush("a", "x").get("k3")
    replies = pipeline.execute(raise_on_error=False)
assert replies[:2] == [2, 3] and replies[3] == "3", replies
assert "wrong kind" in str(replies[2]), replies
with client.pipeline(transaction=False) as pipeline:
    assert pipeline.set("p", "1").get("p").execute() == [True, "1"]
client.hset("h", mapping={"x": "1", "y": "2"})
assert client.hgetall("h") == {"x": "1", "y": "2"}
client.zadd("z", {"m": 1.5, "n": 2})
assert client.zrange("z", 0, -1, withscores=True) == [("m", 1.5), ("n", 2.0)]
assert client.sadd("s", "x", "y") == 2 and client.smembers("s") == {"x", "y"}
assert sorted(client.scan_iter(match="k*")) == ["k1", "k2", "k3"]
assert client.info()["redis_mode"] == "standalone"
assert client.client_list()[0]["db"] == "0"
assert client.config_get("save") == {"save": ""}
try:
    with client.pipeline() as pipeline:
        pipeline.watch("a")
    raise AssertionError("WATCH is refused")
except redis.ResponseError as error:
    assert "WATCH is not supported" in str(error), error
print("done")
