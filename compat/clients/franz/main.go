// franz-go against one bootstrap address: a topic is made, idempotent records go in, two members of
// a group share them cooperatively, offsets are committed and asked for. Prints one JSON object.
// Run as: franz ADDRESS TOPIC [transactions]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	records    = 400
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	scenario := run
	if len(os.Args) > 3 {
		scenario = transact
	}
	seen, err := scenario(ctx, os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(seen)
}

func run(ctx context.Context, address, topic string) (map[string]any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err = admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return nil, err
	}
	_, again := admin.CreateTopic(ctx, partitions, 1, nil, topic)
	if err = produce(ctx, client); err != nil {
		return nil, err
	}
	values, shares, err := share(ctx, address, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	lags, err := admin.Lag(ctx, topic)
	if err != nil {
		return nil, err
	}
	lag := lags[topic]
	var end int64
	ends.Each(func(one kadm.ListedOffset) { end += one.Offset })
	deleted, err := admin.DeleteGroup(ctx, topic)
	return map[string]any{
		"again": fmt.Sprint(again), "values": values, "shares": shares, "end": end,
		"lag": lag.Lag.Total(), "state": lag.State, "protocol": lag.Protocol,
		"deleted": deleted.Group == topic && err == nil,
	}, nil
}

func produce(ctx context.Context, client *kgo.Client) error {
	for number := range records {
		client.Produce(ctx, &kgo.Record{
			Key:     fmt.Appendf(nil, "key-%d", number),
			Value:   fmt.Appendf(nil, "value-%d", number),
			Headers: []kgo.RecordHeader{{Key: "number", Value: fmt.Append(nil, number)}},
		}, nil)
	}
	return client.Flush(ctx)
}

// share lets two members read everything, one after the other has joined; it returns the distinct
// values, and how many partitions each member held when both had joined.
func share(ctx context.Context, address, topic string) ([]string, []int, error) {
	held := [2]*holding{{partitions: map[int32]bool{}}, {partitions: map[int32]bool{}}}
	distinct := map[string]bool{}
	var members [2]*kgo.Client
	for index := range members {
		member, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic),
			kgo.ConsumerGroup(topic), kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(300*time.Millisecond),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
			kgo.OnPartitionsAssigned(held[index].change(topic, true)),
			kgo.OnPartitionsRevoked(held[index].change(topic, false)))
		if err != nil {
			return nil, nil, err
		}
		defer member.Close()
		members[index] = member
	}
	for len(distinct) < records || held[0].count() != 2 || held[1].count() != 2 {
		for _, member := range members {
			if err := poll(ctx, member, distinct); err != nil {
				return nil, nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
	shares := []int{held[0].count(), held[1].count()}
	values := make([]string, 0, len(distinct))
	for value := range distinct {
		values = append(values, value)
	}
	sort.Strings(values)
	return values, shares, nil
}

// poll reads what there is within a moment and commits it; callbacks run only between polls.
func poll(ctx context.Context, member *kgo.Client, distinct map[string]bool) error {
	moment, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	member.PollFetches(moment).EachRecord(func(record *kgo.Record) {
		distinct[string(record.Key)+"="+string(record.Value)] = true
	})
	err := member.CommitUncommittedOffsets(ctx)
	member.AllowRebalance()
	return err
}

// holding is what a member holds; its callbacks come from another goroutine than the polls.
type holding struct {
	sync.Mutex
	partitions map[int32]bool
}

func (held *holding) count() int {
	held.Lock()
	defer held.Unlock()
	return len(held.partitions)
}

func (held *holding) change(topic string, holds bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		held.Lock()
		defer held.Unlock()
		for _, partition := range changed[topic] {
			if holds {
				held.partitions[partition] = true
			} else {
				delete(held.partitions, partition)
			}
		}
	}
}
