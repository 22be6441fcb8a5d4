// sarama's transactions against one bootstrap address: some are committed, some aborted, an input is
// copied together with its offsets, and a second producer fences the first. Prints one JSON object.
// With "secure", records are only written and read; how to connect comes in as a JSON object.
// Run as: sarama ADDRESS TOPIC [secure]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 2
	records    = 20
)

func main() {
	scenario := run
	if len(os.Args) > 3 {
		scenario = carry
	}
	seen, err := scenario(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(seen)
}

func settings(id string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func run(address, topic string) (map[string]any, error) {
	at := []string{address}
	admin, err := sarama.NewClusterAdmin(at, settings(""))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	for _, name := range []string{topic, topic + "-copied"} {
		detail := sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
		if err := admin.CreateTopic(name, &detail, false); err != nil {
			return nil, err
		}
	}
	first, err := sarama.NewSyncProducer(at, settings(topic))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"committed", "aborted", "again"} {
		if err := transaction(first, topic, name, name == "aborted"); err != nil {
			return nil, err
		}
	}
	if err := copied(at, topic); err != nil {
		return nil, err
	}
	fenced, err := fences(at, topic, first)
	if err != nil {
		return nil, err
	}
	input, err := read(at, topic)
	if err != nil {
		return nil, err
	}
	output, err := read(at, topic+"-copied")
	if err != nil {
		return nil, err
	}
	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1}})
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"input": input, "output": output, "fenced": fenced,
		"offsets": []int64{offsets.GetBlock(topic, 0).Offset, offsets.GetBlock(topic, 1).Offset},
	}, nil
}

func transaction(producer sarama.SyncProducer, topic, name string, aborts bool) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for number := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: int32(number % partitions),
			Value: sarama.StringEncoder(fmt.Sprintf("%s-%d", name, number))}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	if aborts {
		return producer.AbortTxn()
	}
	return producer.CommitTxn()
}

// fences starts a second producer while the first has a transaction open, which cannot commit then.
func fences(at []string, topic string, first sarama.SyncProducer) (bool, error) {
	if err := first.BeginTxn(); err != nil {
		return false, err
	}
	lost := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("lost")}
	if _, _, err := first.SendMessage(lost); err != nil {
		return false, err
	}
	second, err := sarama.NewSyncProducer(at, settings(topic))
	if err != nil {
		return false, err
	}
	defer second.Close()
	err = first.CommitTxn()
	return err != nil, transaction(second, topic, "second", false)
}

// copied reads the committed records in a group and writes each to another topic, with its offset.
func copied(at []string, topic string) error {
	producer, err := sarama.NewSyncProducer(at, settings(topic+"-copier"))
	if err != nil {
		return err
	}
	defer producer.Close()
	group, err := sarama.NewConsumerGroup(at, topic, settings(""))
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	copier := &copier{producer: producer, topic: topic, done: make(chan error, partitions)}
	go func() { copier.done <- group.Consume(ctx, []string{topic}, copier) }()
	for range 2 * records {
		if err := <-copier.done; err != nil {
			return err
		}
	}
	return nil
}

type copier struct {
	producer sarama.SyncProducer
	topic    string
	done     chan error
	turn     chan struct{}
}

func (copier *copier) Setup(sarama.ConsumerGroupSession) error {
	copier.turn = make(chan struct{}, 1)
	return nil
}

func (copier *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (copier *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			copier.turn <- struct{}{} // a producer has one transaction at a time
			err := copier.copy(message)
			<-copier.turn
			copier.done <- err
		case <-session.Context().Done():
			return nil
		}
	}
}

func (copier *copier) copy(message *sarama.ConsumerMessage) error {
	if err := copier.producer.BeginTxn(); err != nil {
		return err
	}
	out := &sarama.ProducerMessage{Topic: copier.topic + "-copied", Partition: message.Partition,
		Value: sarama.ByteEncoder(message.Value)}
	if _, _, err := copier.producer.SendMessage(out); err != nil {
		return err
	}
	if err := copier.producer.AddMessageToTxn(message, copier.topic, nil); err != nil {
		return err
	}
	return copier.producer.CommitTxn()
}

// read gives the committed values of a topic, sorted, up to its last stable offsets.
func read(at []string, topic string) ([]string, error) {
	consumer, err := sarama.NewConsumer(at, settings(""))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	values := []string{}
	for partition := range int32(partitions) {
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for more := true; more; {
			select {
			case message := <-part.Messages():
				values = append(values, string(message.Value))
			case <-time.After(2 * time.Second):
				more = false
			}
		}
		_ = part.Close()
	}
	sort.Strings(values)
	return values, nil
}
