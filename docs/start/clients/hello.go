package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	brokers := "127.0.0.1:9092"
	if len(os.Args) > 1 {
		brokers = os.Args[1]
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers),
		kgo.ConsumerGroup("go"),
		kgo.ConsumeTopics("greetings"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	record := &kgo.Record{Topic: "greetings", Key: []byte("go"), Value: []byte("hello from Go")}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		panic(err)
	}

	seen, own := 0, "none"
	for {
		quiet, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		fetches := client.PollFetches(quiet)
		cancel()
		if fetches.NumRecords() == 0 {
			break
		}
		fetches.EachRecord(func(each *kgo.Record) {
			seen++
			if string(each.Key) == "go" {
				own = string(each.Value)
			}
		})
	}
	fmt.Printf("%d records, one of them: %s\n", seen, own)
}
