package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const ofOne = 20

// transact commits, aborts, copies an input together with its offsets, and is fenced.
func transact(ctx context.Context, address, topic string) (map[string]any, error) {
	first, err := transactional(address, topic, topic)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	admin := kadm.NewClient(first)
	if _, err = admin.CreateTopics(ctx, 2, 1, nil, topic, topic+"-copied"); err != nil {
		return nil, err
	}
	for _, name := range []string{"committed", "aborted", "again"} {
		if err := transaction(ctx, first, name, name != "aborted"); err != nil {
			return nil, err
		}
	}
	ends, err := copied(ctx, address, topic)
	if err != nil {
		return nil, err
	}
	fenced, err := fences(ctx, address, topic, first)
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	stable := []int64{}
	listed.Each(func(one kadm.ListedOffset) { stable = append(stable, one.Offset) })
	sort.Slice(stable, func(a, b int) bool { return stable[a] < stable[b] })
	input, output := []string{}, []string{}
	for name, values := range map[string]*[]string{topic: &input, topic + "-copied": &output} {
		if *values, err = committed(ctx, address, name); err != nil {
			return nil, err
		}
	}
	return map[string]any{
		"input": input, "output": output, "copies": ends, "fenced": fenced, "stable": stable,
	}, nil
}

func transactional(address, topic, id string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic),
		kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
}

func transaction(ctx context.Context, client *kgo.Client, name string, commits bool) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for number := range ofOne {
		client.Produce(ctx, kgo.StringRecord(fmt.Sprintf("%s-%d", name, number)), nil)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(commits))
}

// copied moves the committed records to another topic in sessions of a group; the first is aborted.
func copied(ctx context.Context, address, topic string) ([]bool, error) {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(address),
		kgo.TransactionalID(topic+"-copier"), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ends := []bool{}
	for count := 0; count < 2*ofOne; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: topic + "-copied", Value: record.Value}, nil)
		})
		commits := len(ends) > 0
		ended, err := session.End(ctx, kgo.TransactionEndTry(commits))
		if err != nil {
			return nil, err
		}
		if ended {
			count += fetches.NumRecords()
		}
		if len(ends) == 0 || !ends[len(ends)-1] {
			ends = append(ends, ended)
		}
	}
	return ends, nil
}

// fences starts a second producer while the first has a transaction open.
func fences(ctx context.Context, address, topic string, first *kgo.Client) (string, error) {
	if err := first.BeginTransaction(); err != nil {
		return "", err
	}
	if err := first.ProduceSync(ctx, kgo.StringRecord("lost")).FirstErr(); err != nil {
		return "", err
	}
	err := takesOver(ctx, address, topic)
	for errors.Is(err, kerr.ConcurrentTransactions) && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond) // what the first has open is aborted before
		err = takesOver(ctx, address, topic)
	}
	if err != nil {
		return "", err
	}
	err = first.EndTransaction(ctx, kgo.TryCommit)
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Message, nil
	}
	return fmt.Sprint(err), nil
}

// takesOver commits one transaction of a new producer. franz-go gives up a producer whose start
// comes while the transaction before is being aborted.
func takesOver(ctx context.Context, address, topic string) error {
	second, err := transactional(address, topic, topic)
	if err != nil {
		return err
	}
	defer second.Close()
	return transaction(ctx, second, "second", true)
}

// committed gives a topic's committed values, sorted, up to its last stable offsets.
func committed(ctx context.Context, address, topic string) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := []string{}
	for {
		moment, cancel := context.WithTimeout(ctx, 2*time.Second)
		fetches := client.PollFetches(moment)
		cancel()
		if fetches.NumRecords() == 0 {
			break
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	sort.Strings(values)
	return values, ctx.Err()
}
